"""Starts a server and passes what a client sends on to it, with marks in it replaced by what no client's own encoder
writes. Arguments: the server's command line.
"""

import subprocess
import sys

ODD = {
    b'"@surrogate@"': rb'"\ud800"',
    b'"@number@"': b"1e400",
    b'"@nested@"': b"[" * 200 + b"]" * 200,
    b'"@bytes@"': b'"\xff\xfe"',
    b'"@long@"': b'"' + b"x" * (3 << 20) + b'"',
}

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
for line in sys.stdin.buffer:
    for mark, odd in ODD.items():
        line = line.replace(mark, odd)
    server.stdin.write(line)
    server.stdin.flush()
server.stdin.close()
sys.exit(server.wait())
