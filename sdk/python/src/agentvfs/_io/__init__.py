"""What touches the world: environment, sockets, processes, time. It drives the operations of ``_core``."""
