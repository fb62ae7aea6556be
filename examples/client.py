#!/usr/bin/python3
"""Submits a job to a coordinator, watches it for a few steps and cancels it.

    examples/client.py --coordinator 127.0.0.1:7700 --text corpus.txt

Needs Debian's python3-grpcio, python3-protobuf, protobuf-compiler and protobuf-compiler-grpc. The
stubs are generated from the published definitions in proto/ when the program starts.
"""

import argparse
import importlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid

try:
    import grpc
except ImportError:
    sys.exit("the Python module grpc is missing: install python3-grpcio")

PROTO = pathlib.Path(__file__).resolve().parent.parent / "proto"


def load_stubs(proto, directory):
    """Generates and imports the modules of the job service."""
    plugin = shutil.which("grpc_python_plugin")
    if plugin is None:
        sys.exit("grpc_python_plugin is missing: install protobuf-compiler-grpc")
    files = ["sherd/v1/job.proto", "sherd/v1/layout.proto", "sherd/v1/events.proto",
             "sherd/v1/job_service.proto"]
    subprocess.run(
        ["protoc", f"-I{proto}", f"--python_out={directory}", f"--grpc_python_out={directory}",
         f"--plugin=protoc-gen-grpc_python={plugin}", *files],
        check=True)
    sys.path.insert(0, directory)
    return [importlib.import_module(f"sherd.v1.{name}")
            for name in ("job_pb2", "events_pb2", "job_service_pb2", "job_service_pb2_grpc")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coordinator", required=True, metavar="HOST:PORT")
    parser.add_argument("--text", required=True, help="file to train on, as the workers see it")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the job")
    parser.add_argument("--cancel-after", type=int, default=3, metavar="STEPS")
    parser.add_argument("--proto", default=PROTO, help="where the definitions are")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for all of it")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as directory, \
            grpc.insecure_channel(arguments.coordinator) as channel:
        job_pb2, events_pb2, service_pb2, service_grpc = load_stubs(arguments.proto, directory)
        jobs = service_grpc.JobServiceStub(channel)
        try:
            return follow(arguments, jobs, job_pb2, events_pb2, service_pb2)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1


def follow(arguments, jobs, job_pb2, events_pb2, service_pb2):
    spec = job_pb2.JobSpec(
        name="from-python",
        model=job_pb2.ModelSpec(layers=2, hidden=64, heads=4, vocab=256, context=64),
        data=job_pb2.DataSpec(train=[arguments.text]),
        train=job_pb2.TrainSpec(steps=arguments.steps, global_batch=8, micro_batch=2),
        checkpoint=job_pb2.CheckpointSpec(dir="from-python"))
    # Submitting again with the same id returns the same job.
    request = service_pb2.SubmitRequest(request_id=str(uuid.uuid4()), spec=spec)
    job = jobs.Submit(request, timeout=30).job
    again = jobs.Submit(request, timeout=30).job
    assert again.id == job.id, "a retried submit made a second job"
    print(f"submitted {job.id}")

    feed = jobs.Watch(service_pb2.WatchRequest(job_id=job.id), timeout=arguments.timeout)
    for response in feed:
        event = response.event
        kind = event.WhichOneof("event")
        if kind == "state":
            print(f"{events_pb2.JobState.Name(event.state.state)} {event.state.reason}".rstrip())
        elif kind == "step":
            print(f"step {event.step.step} loss {event.step.loss:.4f}")
            if event.step.step == arguments.cancel_after:
                jobs.Cancel(service_pb2.CancelRequest(job_id=job.id), timeout=30)
        elif kind == "done":
            print(f"ended: {events_pb2.JobState.Name(event.done.state)} "
                  f"after step {event.done.steps} {event.done.reason}".rstrip())
            cancelled = event.done.state == events_pb2.JOB_STATE_CANCELLED
            return 0 if cancelled else 1
    print("the feed ended before the job", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
