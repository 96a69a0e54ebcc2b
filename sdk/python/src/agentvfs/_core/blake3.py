"""BLAKE3 of short inputs: the name of the socket of a home whose path is long contains it.

Plain hashing alone, by the specification (https://github.com/BLAKE3-team/BLAKE3-specs). Tested against its vectors.
"""

from __future__ import annotations

_IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_COLUMNS_AND_DIAGONALS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
_CHUNK, _BLOCK, _MASK = 1024, 64, 0xFFFFFFFF
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8


def _rotated(word: int, bits: int) -> int:
    return (word >> bits) | (word << (32 - bits)) & _MASK


def _mix(v: list[int], at: tuple[int, int, int, int], x: int, y: int) -> None:
    a, b, c, d = at
    for word, first, second in ((x, 16, 12), (y, 8, 7)):
        v[a] = (v[a] + v[b] + word) & _MASK
        v[d] = _rotated(v[d] ^ v[a], first)
        v[c] = (v[c] + v[d]) & _MASK
        v[b] = _rotated(v[b] ^ v[c], second)


def _compress(chain: tuple[int, ...], block: bytes, counter: int, flags: int) -> tuple[int, ...]:
    padded = block.ljust(_BLOCK, b"\0")
    words = [int.from_bytes(padded[i : i + 4], "little") for i in range(0, _BLOCK, 4)]
    v = [*chain, *_IV[:4], counter & _MASK, counter >> 32, len(block), flags]
    for _ in range(7):
        for i, at in enumerate(_COLUMNS_AND_DIAGONALS):
            _mix(v, at, words[2 * i], words[2 * i + 1])
        words = [words[i] for i in _PERMUTATION]
    return tuple(v[i] ^ v[i + 8] for i in range(8))


def _chunk(data: bytes, counter: int, root: int) -> tuple[int, ...]:
    chain: tuple[int, ...] = _IV
    last = max(0, (len(data) - 1) // _BLOCK)
    for i in range(last + 1):
        flags = (_CHUNK_START if i == 0 else 0) | (_CHUNK_END | root if i == last else 0)
        chain = _compress(chain, data[i * _BLOCK : (i + 1) * _BLOCK], counter, flags)
    return chain


def _tree(data: bytes, counter: int, root: int) -> tuple[int, ...]:
    if len(data) <= _CHUNK:
        return _chunk(data, counter, root)
    chunks = (len(data) - 1) // _CHUNK  # All but the last.
    left = _CHUNK << (chunks.bit_length() - 1)
    halves = _tree(data[:left], counter, 0) + _tree(data[left:], counter + left // _CHUNK, 0)
    block = b"".join(word.to_bytes(4, "little") for word in halves)
    return _compress(_IV, block, 0, _PARENT | root)


def blake3(data: bytes) -> str:
    """The hash of ``data`` in 64 hex digits."""
    return b"".join(word.to_bytes(4, "little") for word in _tree(data, 0, _ROOT)).hex()
