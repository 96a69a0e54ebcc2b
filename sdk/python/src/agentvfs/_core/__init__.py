"""What this package knows, without I/O: messages, operations, where things are.

Operations are generators: they yield what is to be done (``effects``) and get its outcome. ``_io`` drives them,
blocking or with asyncio, so that both APIs have one implementation. Nothing here opens a file or a socket.
"""
