"""Version of this package, which is that of the program."""

VERSION = "0.1.0"
#: What the daemon's log has about this client.
CLIENT = f"agentvfs-python {VERSION}"
