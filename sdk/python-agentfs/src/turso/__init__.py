"""Of Turso only ``turso.aio`` is here."""
