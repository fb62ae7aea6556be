#!/usr/bin/python3
"""Makes the first inputs of each fuzz target, corpus/TARGET/seed-*; what fuzzing found is kept beside them.

Needs Debian's python3-protobuf and protobuf-compiler.
"""

import importlib
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data if isinstance(data, bytes) else data.encode())


def stubs(folder):
    files = [f"sherd/v1/{name}.proto" for name in ("job", "layout", "events", "worker", "job_service")]
    subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", *files], check=True)
    sys.path.insert(0, folder)
    return [importlib.import_module(f"sherd.v1.{name}_pb2") for name in ("job", "worker", "job_service", "layout")]


def spec_of(job_pb2, strategy):
    spec = job_pb2.JobSpec(name="tiny")
    spec.model.arch, spec.model.layers, spec.model.hidden, spec.model.heads = job_pb2.ARCHITECTURE_GPT2, 2, 32, 2
    spec.model.vocab, spec.model.context = 256, 16
    spec.data.train.append("text")
    spec.train.steps, spec.train.global_batch, spec.train.micro_batch = 3, 4, 2
    spec.train.optimizer.lr = 1e-3
    spec.parallel.strategy = job_pb2.Strategy.Value(f"STRATEGY_{strategy.upper()}")
    spec.elastic.min_workers, spec.elastic.max_workers = 2, 3
    spec.checkpoint.dir = "out"
    return spec


def entry(what, message):
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return struct.pack("<BH", what, len(data)) + data


def conversations(job_pb2, worker_pb2, service_pb2):
    """A submission, its ranks' reports, deaths and returns, as coordinator_fuzz.cc takes them."""
    submit = service_pb2.SubmitRequest(request_id="r", spec=spec_of(job_pb2, "zero2"))
    fine = worker_pb2.SessionRequest()
    fine.inspection.request_id = 1

    def report(rank, epoch=1, **fields):
        request = worker_pb2.SessionRequest()
        request.report.job_id, request.report.epoch, request.report.rank = "job-1", epoch, rank
        request.report.MergeFrom(worker_pb2.RankReport(**fields))
        return request

    start = entry(3, submit) + entry(1, fine)
    ready = b"".join(entry(2 + 8 * rank, report(rank, ready=worker_pb2.RankReady(copies=1))) for rank in range(3))
    step = entry(2, report(0, step={"step": 1, "epoch": 1, "loss": 5.5, "tokens": 64}))
    gone = entry(7 + 8, b"") + entry(6 + 8 * 12, b"")
    exit_of = entry(4, worker_pb2.ReportExitRequest(worker_id="worker1", incarnation=1, pid=7, signal=9))
    held = entry(2, report(0, released={"step": 1, "holdings": [{"epoch": 1, "world": 3, "owner": 0, "step": 1}]}))
    failed = entry(2 + 16, report(2, failed={"error": "a peer went away", "step": 1, "lost_peer": 1}))
    done = b"".join(entry(2 + 8 * rank, report(rank, finished={"steps": 3})) for rank in range(3))
    return {"success": start + ready + step + done, "death": start + ready + step + gone + exit_of + held + failed,
            "cancel": start + ready + entry(5, b"job-1") + held, "silence": start + ready + step + entry(6 + 8 * 15, b"") * 3,
            "drain": start + ready + entry(5, b"worker2") + held,
            "read": start + ready + step + entry(5, service_pb2.WatchRequest(job_id="job-1", after_sequence=2)) +
                    entry(5, service_pb2.ListJobsRequest(next=3))}


def string(text):
    return struct.pack("<H", len(text)) + text.encode()


def link_messages():
    def head(kind):
        return struct.pack("<IBB", 0x44524853, 4, kind)
    yield "hello", head(1) + string("job-1") + struct.pack("<q", 1) + string("dp0") + string("s" * 32) + struct.pack("<iii", 2, 1, 0) + b"\0"
    yield "segment", head(2) + string("s" * 32) + struct.pack("<q", 4096)
    yield "goodbye", head(3) + b"\x0a" + struct.pack("<i", 1) + string("rank 1 has left")
    for kind in range(4, 9):
        yield f"kind-{kind}", head(kind) + bytes(40)


def token_files():
    yield "text", b"\0the shard of a rank"
    yield "jsonl", b"\1" + b'{"text": "one"}\n\n{"text": "two \\u00e9", "id": 2}\n'
    yield "u16", b"\2" + struct.pack("<6H", 1, 2, 3, 40000, 5, 6)
    for magic, code in ((20240520, "H"), (20240801, "I")):
        yield f"llmc-{magic}", b"\3" + struct.pack("<256i", magic, 1 if code == "H" else 7, 4, *[0] * 253) + struct.pack(f"<4{code}", 1, 2, 3, 4)
    lengths, pointers, documents = (3, 5), (0, 12), (0, 1, 2)
    yield "megatron", b"\4MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 2, 3) + struct.pack("<2i2q3q", *lengths, *pointers, *documents)


def checkpoints():
    """What a manifest says beside its checksum: of each version and kind."""
    model = {"arch": "gpt2", "layers": 1, "hidden": 3, "heads": 1, "kv_heads": 1, "ffn": 5, "vocab": 7, "context": 2,
             "tie_embeddings": True}
    llama = {**model, "arch": "llama", "hidden": 4, "norm_eps": 1e-5, "rotary": {
        "theta": 1e4, "factor": 1.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context": 2}}
    shards = [{"file": f"shard-{i}.safetensors", "bytes": 1000, "xxh3": "00000000000000ff"} for i in range(2)]

    def tensors(checksums, columns):
        piece = {"xxh3": "00000000000000ff"} if checksums else {}
        whole = {"begin": 0, "end": 6, "shard": 0, "offset": 100, **piece}
        blocks = [{**whole, "end": 4, "columns": [0, 2]}, {**whole, "end": 2, "columns": [2, 3], "shard": 1}]
        return [{"name": "a", "dtype": "F32", "shape": [2, 3], "pieces": blocks if columns else [whole]}]

    common = {"format": "sherd-checkpoint", "job": "job-1", "step": 3, "epoch": 1, "tokenizer": "bytes", "model": model,
              "shards": shards}
    yield "version-1", {**common, "version": 1, "tensors": tensors(False, False)}
    yield "version-2", {**common, "version": 2, "tensors": tensors(False, True)}
    yield "weights", {**common, "version": 3, "kind": "weights", "tensors": tensors(True, False)}
    yield "columns", {**common, "version": 3, "kind": "weights", "tensors": tensors(True, True), "model": llama}
    keys = re.findall(r'\{"([a-z0-9_.]+)",', (ROOT / "worker/checkpoint/training_keys.cc").read_text())
    settings = {**{key: 1 for key in keys}, "train.schedule.kind": "cosine",
                "train.optimizer.groups": [{"parameters": "*norm*", "weight_decay": 0.0, "lr_scale": 0.5}],
                "train.freeze": ["wte*"]}
    yield "training", {**common, "version": 3, "kind": "training", "tensors": tensors(True, False), "training": {
        "lineage": "job-1", "corpus_tokens": 1000, "tokens": 96, "skipped_windows": 0, "loss": 5.5,
        "data.train.weights": [1.0, 2.5], "data.validation_split": 0.1, "settings": settings}}


def worker_messages(worker_pb2):
    hello = worker_pb2.Hello(worker_id="host/cpu:0", incarnation=7, device="cpu:0", host="host", data_address="unix-abstract:a")
    exit_of = worker_pb2.ReportExitRequest(worker_id="host/cpu:0", incarnation=7, pid=3, signal=9)
    yield "hello", b"\0\0" + hello.SerializeToString()
    yield "exit", b"\1\0" + exit_of.SerializeToString()
    reports = {"ready": {"copies": 1}, "step": {"step": 2, "loss": 5.5, "tokens": 64}, "eval": {"step": 2, "loss": 5.0},
               "finished": {"steps": 10, "last_steps": [{"step": 9}, {"step": 10}]}, "failed": {"error": "a peer", "lost_peer": 1},
               "released": {"step": 1, "holdings": [{"epoch": 1, "world": 3, "owner": 0, "step": 1}]},
               "checkpoint": {"step": 2}}
    for name, fields in reports.items():
        report = worker_pb2.RankReport(job_id="job-1", epoch=1, rank=0, **{name: fields})
        yield name, b"\2\1" + report.SerializeToString()


def assignments(job_pb2, layout_pb2):
    """Of rank 1 of two: to train from the start, to go on, to probe; over shared memory and over TCP."""
    kinds = layout_pb2.GroupKind

    def make(strategy, **fields):
        made = layout_pb2.Assignment(job_id="job-1", epoch=2, rank=1, world=2, ranks_on_host=2, secret=b"s", **fields)
        made.spec.CopyFrom(spec_of(job_pb2, strategy))
        return made

    groups = [{"kind": kinds.GROUP_KIND_TENSOR, "ranks": [1], "shares_memory": True},
              {"kind": kinds.GROUP_KIND_DATA, "ranks": [0, 1], "shares_memory": True}]
    peers = [{"rank": 0, "address": b"unix-abstract:a"}, {"rank": 1, "shared_bytes": 14, "address": b"b"}]
    yield "first-epoch", make("zero3", groups=groups, peers=peers, holders=["unix-abstract:a"], stored_for=[0])
    far = [groups[0], {**groups[1], "shares_memory": False}]
    yield "restore", make("ddp", groups=far, peers=peers[1:], reported_step=3, network_peers=[
        {"rank": 0, "address": b"tcp:10.0.0.1:4000"}, {"rank": 1, "shared_bytes": 11, "address": b"2:4000"}],
        restore={"epoch": 1, "world": 3, "step": 3, "secret": b"t", "sources": [{"owner": 2, "address": "unix-abstract:a"}]})
    relaid = make("zero3", groups=groups, peers=peers, restore={"epoch": 1, "world": 4, "step": 3, "sources": [{"owner": 1}]})
    relaid.restore.parallel.CopyFrom(job_pb2.ParallelSpec(
        strategy=job_pb2.STRATEGY_HYBRID, shard_group=2, tensor=1, zero1_gradients=job_pb2.GRADIENT_REDUCTION_REDUCE_SCATTER,
        recompute=job_pb2.RECOMPUTE_NONE, offload=job_pb2.OFFLOAD_NONE))
    yield "other-layout", relaid
    cut = [{"kind": kinds.GROUP_KIND_SHARD, "ranks": [1], "shares_memory": True},
           {"kind": kinds.GROUP_KIND_REPLICA, "ranks": [0, 1], "shares_memory": True}]
    hybrid = make("hybrid", groups=groups + cut, peers=peers)
    hybrid.spec.parallel.shard_group = 1
    yield "hybrid", hybrid
    tensor = make("zero2", groups=[{**groups[0], "ranks": [0, 1]}, {**groups[1], "ranks": [1]}], peers=peers)
    tensor.spec.parallel.tensor = 2
    yield "tensor", tensor
    yield "probe", make("auto", peers=peers, trial={"number": 1, "group_sizes": [2]})


def agent_conversations(worker_pb2):
    """A coordinator's messages and ends of the trainer, as agent_fuzz.cc takes them."""
    def say(**fields):
        return entry(0, worker_pb2.SessionResponse(**fields))

    def of(epoch, job="job-1"):
        return {"job_id": job, "epoch": epoch}

    assign = say(assign={**of(1), "rank": 1, "world": 2})
    abort = say(abort={**of(1), "rank": 1, "reason": "a peer went away"})
    ended, aborted = entry(1, b""), entry(1 + 4 * 19, b"aborted")
    yield "trained", assign + say(locate=of(1)) + ended + say(retain={**of(1), "ended": True})
    yield "next-epoch", assign + abort + aborted + say(assign={**of(2), "rank": 0, "world": 1}) + assign
    yield "paused", assign + say(pause={**of(1), "reason": "a drain"}) + entry(1 + 4 * 32, b"") + say(pause=of(1))
    yield "abort-before-assign", say(abort=of(3)) + say(assign=of(3)) + say(assign=of(4))
    yield "stopped-at-work", assign + entry(2, b"SIGTERM") + abort + say(abort=of(2)) + aborted
    yield "stuck", assign + abort + entry(3, b"") + assign
    yield "two-jobs", assign + say(assign={**of(1, "job-2"), "rank": 0, "world": 1}) + ended


def tokenizer():
    letters = {chr(c): c - 33 for c in range(33, 127)}
    model = {"type": "BPE", "vocab": {**letters, "th": 94, "the": 95}, "merges": ["t h", "th e"]}
    return {"version": "1.0", "added_tokens": [{"id": 96, "content": "<end>", "special": True, "single_word": False, "lstrip": False,
                                                "rstrip": False, "normalized": False}],
            "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"}, "model": model}


def main():
    with tempfile.TemporaryDirectory() as folder:
        job_pb2, worker_pb2, service_pb2, layout_pb2 = stubs(folder)
        for name, data in conversations(job_pb2, worker_pb2, service_pb2).items():
            write("coordinator", name, data)
        for name, data in worker_messages(worker_pb2):
            write("worker_message", name, data)
        for name, message in assignments(job_pb2, layout_pb2):
            write("assignment", name, message.SerializeToString())
        for name, data in agent_conversations(worker_pb2):
            write("agent", name, data)
        for strategy in ("ddp", "zero1", "zero3", "hybrid"):
            write("job_spec", strategy, spec_of(job_pb2, strategy).SerializeToString())
    write("job_file", "example", (ROOT / "examples/fortunes.yaml").read_bytes())
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                         "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}, "__metadata__": {"format": "pt"}})
    write("safetensors", "two", struct.pack("<I", 32)[:3] + header.encode())
    for name, data in checkpoints():
        write("manifest", name, json.dumps(data))
    for name, data in link_messages():
        write("link_message", name, data)
    for name, data in token_files():
        write("token_file", name, data)
    write("tokenizer", "small", json.dumps(tokenizer()) + "\0the end <end>")


if __name__ == "__main__":
    main()
