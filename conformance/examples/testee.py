#!/usr/bin/python3
"""A complete testee: an engine in Python behind the protocol of spec/testee.md.

Written from the pages of conformance/spec/ alone, with the standard library and numpy (Debian's
python3-numpy); it loads nothing of this project. It is slow, plain and right: the proof that the
pages are enough, and a place to look when they seem not to be. Run it under the judge:

    ol check L10.1 --testee conformance/examples/testee.py

This file is the table of ops; each page has its part in testee_py/.
"""
import os
import sys
import traceback

# A thread of a BLAS would outlive the last answer, and there is nothing here that needs one.
for variable in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
    os.environ[variable] = "1"
sys.dont_write_bytecode = True

import numpy as np

from testee_py import envelope, numbers16, pcg32
from testee_py.config import load_config, parse_config
from testee_py.forward import Runner, Sequence, linear
from testee_py.model import load_model
from testee_py.pcg32 import Pcg32
from testee_py.pool import Pool
from testee_py.refusal import Refusal, need
from testee_py.safetensors import Checkpoint, File, open_checkpoint
from testee_py.sampling import Distribution
from testee_py.wire import (get_array, get_count, get_f64, get_u64, put_array, put_f64, put_u64,
                            read_frame, write_frame)

HANDLES = {}


def keep(thing):
    """A handle that no other thing has or had."""
    keep.last += 1
    HANDLES[keep.last] = thing
    return keep.last


keep.last = 0

# A function op_NAME is the op NAME: it takes the request's arguments by name and returns the
# results. A default stands where the page has one.


def op_hello():
    return {"name": "testee.py", "version": "1", "language": "Python", "abi": 65536,
            "isas": ["portable"], "threads": False}


# ---------------------------------------------------------------- generator
def get_rng(rng):
    return Pcg32(get_u64(rng["state"]), get_u64(rng["inc"]))


def put_rng(rng):
    return {"state": put_u64(rng.state), "inc": put_u64(rng.inc)}


def draws(rng, n, skip, method):
    for _ in range(skip):
        method(rng)
    return [method(rng) for _ in range(n)]


def op_pcg32_new(seed, sequence):
    return {"rng": put_rng(Pcg32.new(get_u64(seed), get_u64(sequence)))}


def op_pcg32_next(rng, n, skip=0):
    rng = get_rng(rng)
    return {"outputs": put_array("u32", draws(rng, n, skip, Pcg32.next_u32)), "rng": put_rng(rng)}


def op_pcg32_uniform(rng, n, skip=0):
    rng = get_rng(rng)
    return {"values": put_array("f64", draws(rng, n, skip, Pcg32.uniform)), "rng": put_rng(rng)}


def op_child_seed(seed, purpose):
    return {"value": put_u64(pcg32.child_seed(get_u64(seed), get_u64(purpose)))}


def op_stream(seed, purpose):
    return {"rng": put_rng(Pcg32.stream(get_u64(seed), get_u64(purpose)))}


# ---------------------------------------------------------------- sampler
PARAMS_OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
              "presence_penalty": 0.0, "frequency_penalty": 0.0}


def distribution(logits, params, prompt, output):
    params = {**PARAMS_OFF, **{k: v if k == "top_k" else get_f64(v) for k, v in params.items()}}
    return Distribution(get_array(logits), params, get_array(prompt), get_array(output))


def distribution_or_rng(rng, inputs):
    """A refusal gives back the generator, which has not moved."""
    try:
        return distribution(**inputs)
    except Refusal as e:
        e.extra["rng"] = rng
        raise


def op_sample(rng, **inputs):
    d = distribution_or_rng(rng, inputs)
    rng = get_rng(rng)
    token = d.draw(rng)
    return {"id": token, "logprob": put_f64(d.logprob(token)), "rng": put_rng(rng)}


def op_sample_sweep(rngs, **inputs):
    d = distribution(**inputs)
    ids = [d.draw(Pcg32(state, inc)) for state, inc in get_array(rngs).reshape(-1, 2).tolist()]
    return {"ids": put_array("u32", ids), "logprobs": put_array("f64", [d.logprob(i) for i in ids])}


def op_sample_run(rng, n, **inputs):
    d = distribution_or_rng(rng, inputs)
    rng = get_rng(rng)
    return {"ids": put_array("u32", [d.draw(rng) for _ in range(n)]), "rng": put_rng(rng)}


# ---------------------------------------------------------------- 16-bit floats and int4
def matrix(values, rows, cols, name):
    need(values.size == rows * cols, "INVALID",
         f"{name} has {values.size} elements, {rows} x {cols} are needed")
    return values.reshape(rows, cols)


def op_f32_to_f16(x):
    return {"h": put_array("u16", numbers16.f32_to_f16(get_array(x)))}


def op_f16_to_f32(h):
    return {"x": put_array("f32", numbers16.f16_to_f32(get_array(h)))}


def op_bf16_to_f32(h):
    return {"x": put_array("f32", numbers16.bf16_to_f32(get_array(h)))}


def op_int4_pack(q, rows, cols):
    return {"packed": put_array("u8", numbers16.pack(matrix(get_array(q), rows, cols, "q")))}


def op_int4_unpack(packed):
    return {"q": put_array("i8", numbers16.unpack(get_array(packed).reshape(1, -1)))}


def op_quantize(w, n_out, n_in, group):
    numbers16.check_group(n_in, group)
    qweight, scales = numbers16.quantize(matrix(get_array(w), n_out, n_in, "w"), group)
    return {"qweight": put_array("u8", qweight), "scales": put_array("u16", scales)}


def get_q4(qweight, scales, n_out, n_in, group):
    numbers16.check_group(n_in, group)
    return numbers16.dequantize(matrix(get_array(qweight), n_out, n_in // 2, "qweight"),
                                matrix(get_array(scales), n_out, n_in // group, "scales"), group)


def op_dequantize(**pair):
    return {"w": put_array("f32", get_q4(**pair))}


def product(w, x, m, isa, rows):
    """y [m, n_out]; columns outside `rows` are 0."""
    need(isa in ("auto", "portable"), "UNSUPPORTED", f"isa is {isa!r}, only portable is here")
    begin, end = rows or (0, w.shape[0])
    need(begin <= end <= w.shape[0], "INVALID", f"rows are {rows}, there are {w.shape[0]}")
    y = np.zeros((m, w.shape[0]), np.float32)
    y[:, begin:end] = linear(matrix(get_array(x), m, w.shape[1], "x"), w[begin:end])
    return {"y": put_array("f32", y)}


def op_q4_linear(x, m, isa="auto", rows=None, **pair):
    return product(get_q4(**pair), x, m, isa, rows)


def op_linear(dtype, weights, n_out, n_in, x, m, isa="auto", rows=None):
    data = get_array(weights)
    if dtype == "f32":
        w = data.view("<f4")
    else:
        widen = {"f16": numbers16.f16_to_f32, "bf16": numbers16.bf16_to_f32}[dtype]
        w = widen(data.view("<u2"))
    return product(matrix(w, n_out, n_in, "weights"), x, m, isa, rows)


# ---------------------------------------------------------------- KV pool
def op_kv_new(model_tag="0" * 16, **shape):
    return {"pool": keep(Pool(model_tag=get_u64(model_tag), **shape))}


def op_kv_free(pool):
    del HANDLES[pool]
    return {}


def op_kv_alloc(pool, n):
    return {"ids": put_array("u32", HANDLES[pool].alloc(n))}


def repeated(result, times):
    """The answer of calls that stop at the first refusal."""
    done, refusal = result
    if done < times:
        refusal.extra["done"] = done
        raise refusal
    return {"done": done}


def op_kv_retain(pool, id, times=1):
    return repeated(HANDLES[pool].retain(id, times), times)


def op_kv_release(pool, id, times=1):
    return repeated(HANDLES[pool].release(id, times), times)


def op_kv_set_fill(pool, id, fill):
    HANDLES[pool].set_fill(id, fill)
    return {}


def op_kv_register(pool, id, key):
    HANDLES[pool].register(id, bytes.fromhex(key))
    return {}


def op_kv_lookup(pool, key):
    return {"id": HANDLES[pool].lookup(bytes.fromhex(key))}


def part(slab, at, n):
    need(at + n <= len(slab), "INVALID",
         f"elements {at} to {at + n} are asked for, the slab has {len(slab)}")
    return slab[at:at + n]


def op_kv_write(pool, id, layer, side, at, values):
    slab = HANDLES[pool].slab(id, layer, side)
    values = get_array(values)
    part(slab, at, len(values))[:] = values
    return {"slab_len": len(slab)}


def op_kv_read(pool, id, layer, side, at=0, n=None):
    slab = HANDLES[pool].slab(id, layer, side)
    values = part(slab, at, max(len(slab) - at, 0) if n is None else n)
    return {"values": put_array("u16", values), "slab_len": len(slab)}


def op_kv_info(pool, id):
    return HANDLES[pool].info(id)


def op_kv_stats(pool):
    return HANDLES[pool].stats()


def op_kv_export(pool, ids, cap=None):
    data = envelope.export(HANDLES[pool], get_array(ids).tolist(), cap)
    return {"bytes": {"u8": data.hex()}}


def op_kv_import(pool, bytes, cap=None):
    blocks = envelope.import_(HANDLES[pool], get_array(bytes).tobytes(), cap)
    return {"ids": put_array("u32", blocks)}


def op_kv_digest(pool):
    return {"digest": put_u64(HANDLES[pool].digest())}


# ---------------------------------------------------------------- checkpoints
def put_config(config):
    return {k: put_f64(v) if isinstance(v, float) else v for k, v in config.items()}


def put_tensors(checkpoint):
    """A dimension from 2^53 on is a string of digits."""
    result = []
    for name, t in checkpoint.tensors.items():
        item = {"name": name, "dtype": t.dtype,
                "shape": [n if n < 2**53 else str(n) for n in t.shape]}
        if not checkpoint.sharded:
            item["begin"], item["end"] = t.begin, t.end
        result.append(item)
    return {"checkpoint": keep(checkpoint), "tensors": result}


def op_config_parse(bytes):
    return put_config(parse_config(get_array(bytes).tobytes()))


def op_config_load(dir):
    return put_config(load_config(dir))


def op_safetensors_open(path, weights="map"):
    return put_tensors(Checkpoint([File(path, weights)]))


def op_checkpoint_open(dir, weights="map"):
    return put_tensors(open_checkpoint(dir, weights))


def op_checkpoint_f32(checkpoint, name, shape):
    values = HANDLES[checkpoint].f32(name, [int(n) for n in shape])
    return {"values": put_array("f32", values)}


def op_checkpoint_q4(checkpoint, name, n_out, n_in, group):
    qweight, scales = HANDLES[checkpoint].q4(name, n_out, n_in, group)
    return {"qweight": put_array("u8", qweight), "scales": put_array("u16", scales)}


def op_checkpoint_free(checkpoint):
    del HANDLES[checkpoint]
    return {}


# ---------------------------------------------------------------- models
def op_load(dir, weights="map", int4_group=0, isa="auto", threads=1, max_batch_tokens=512,
            max_seqs=16, n_blocks=256, block_tokens=16, prefix_cache=True):
    need(isa in ("auto", "portable"), "UNSUPPORTED", f"isa is {isa!r}, only portable is here")
    need(threads > 0, "INVALID", "threads is 0, at least 1 is needed")
    config, model = load_model(dir, weights, int4_group)
    pool = Pool(n_blocks, block_tokens, config["n_layers"], config["n_kv_heads"],
                config["head_dim"], prefix_cache=prefix_cache)
    runner = Runner(config, model, pool, max_batch_tokens, max_seqs)
    runner.pool_handle = keep(pool)
    return {"runner": keep(runner), "pool": runner.pool_handle, "config": put_config(config)}


def op_forward(runner, seqs, rows_cap=None):
    seqs = [Sequence(get_array(s["tokens"]).tolist(), get_count(s["start"]),
                     get_array(s["blocks"]).tolist()) for s in seqs]
    rows = HANDLES[runner].forward(seqs, len(seqs) if rows_cap is None else rows_cap)
    return {"logits": put_array("f32", rows)}


def op_run_once(runner, tokens, hidden=False):
    logits, rows = HANDLES[runner].run_once(get_array(tokens).tolist())
    result = {"logits": put_array("f32", logits)}
    if hidden:
        result["hidden"] = put_array("f32", [] if rows is None else rows)
    return result


def op_runner_free(runner):
    del HANDLES[HANDLES.pop(runner).pool_handle]
    return {}


def op_c_arguments(of):
    """There is no C here, and so no NULL."""
    return {"calls": 0}


def op_memory(dir):
    """The interpreter's: nothing is ever freed by hand."""
    return {}


def op_faults(dir):
    """Python makes the calls, and again where they are interrupted."""
    return {"met": 0}


# ---------------------------------------------------------------- the protocol


def op_calls(calls):
    results = []
    for call in calls:
        call = {k: results[v["result"]][v["key"]] if isinstance(v, dict) and "result" in v else v
                for k, v in call.items()}
        results.append(answer(call))
    return {"results": results}


OPS = {name[3:]: value for name, value in list(globals().items()) if name.startswith("op_")}


def answer(request):
    """The response to a request, without its seq."""
    arguments = {k: v for k, v in request.items() if k not in ("seq", "op")}
    try:
        need(request["op"] in OPS, "INTERNAL", "there is no op %r" % request["op"])
        return {"ok": True, **OPS[request["op"]](**arguments)}
    except Refusal as e:
        return {"ok": False, "status": e.status, "offset": e.offset, "text": e.text, **e.extra}
    except MemoryError:
        return {"ok": False, "status": "NOMEM", "offset": None, "text": "memory was refused"}
    except Exception as e:  # a fault of this program, which the judge has to hear of as one
        traceback.print_exc()
        return {"ok": False, "status": "INTERNAL", "offset": None, "text": f"a fault here: {e!r}"}


def main():
    # Infinities and NaN are values like any other here; numpy would warn of each.
    np.seterr(all="ignore")
    while (request := read_frame()) is not None:
        write_frame({"seq": request["seq"], **answer(request)})


if __name__ == "__main__":
    main()
