"""16-bit floats and int4: forward#f16, forward#widen and the clauses safetensors#int4.*.

numpy's conversion from f32 to f16 rounds to nearest even, subnormals included, and keeps a NaN a
NaN, which is all that forward#f16 asks for.
"""
import numpy as np

from .refusal import need

F32 = np.float32


def f32_to_f16(x):
    """f32 to the bits of f16."""
    return x.astype(np.float32).astype(np.float16).view(np.uint16)


def f16_to_f32(h):
    return np.ascontiguousarray(h).view(np.float16).astype(np.float32)


def bf16_to_f32(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


def check_group(n_in, group):
    need(group > 0 and group % 2 == 0 and n_in % group == 0, "INVALID",
         f"the group is {group}, it must be even and divide the {n_in} columns")


def pack(q):
    """q [rows, cols] of -8 to 7 to bytes: the even column is in the low nibble."""
    need(q.shape[1] % 2 == 0, "INVALID", f"{q.shape[1]} columns do not fill their last byte")
    wrong = np.argwhere((q < -8) | (q > 7))
    need(len(wrong) == 0, "INVALID",
         "q is %d at row %d, column %d, it must be from -8 to 7"
         % ((q[tuple(wrong[0])], *wrong[0]) if len(wrong) else (0, 0, 0)))
    nibbles = q.view(np.uint8) & 15
    return nibbles[:, 0::2] | nibbles[:, 1::2] << 4


def unpack(packed):
    """Bytes [rows, cols / 2] to q [rows, cols]."""
    q = np.empty((packed.shape[0], packed.shape[1] * 2), np.int8)
    q[:, 0::2] = packed & 15
    q[:, 1::2] = packed >> 4
    return (q ^ 8) - 8


def quantize(w, group, name="w"):
    """W [out, in] to (qweight [out, in / 2], bits of the scales [out, in / group])."""
    n_out, n_in = w.shape
    check_group(n_in, group)
    wrong = np.argwhere(~np.isfinite(w))
    need(len(wrong) == 0, "INVALID",
         "%s is not finite at row %d, column %d" % (name, *(wrong[0] if len(wrong) else (0, 0))))
    grouped = w.reshape(n_out, n_in // group, group)
    stored = f32_to_f16(np.abs(grouped).max(axis=2) / F32(7))
    scale = f16_to_f32(stored)[:, :, None]
    wrong = np.argwhere(~np.isfinite(scale[:, :, 0]))
    need(len(wrong) == 0, "INVALID",
         "the scale of %s at row %d, group %d would be infinite in f16"
         % (name, *(wrong[0] if len(wrong) else (0, 0))))
    # A scale of 0 divides nothing: its group is 0 throughout.
    quotient = np.divide(grouped, scale, out=np.zeros_like(grouped), where=scale != 0)
    q = np.clip(np.rint(quotient), -8, 7).astype(np.int8)
    return pack(q.reshape(n_out, n_in)), stored


def dequantize(qweight, scales, group):
    """W^ = q * s, exact in f32; qweight [out, in / 2], scales [out, in / group]."""
    q = unpack(qweight)
    check_group(q.shape[1], group)
    return q.astype(np.float32) * np.repeat(f16_to_f32(scales), group, axis=1)
