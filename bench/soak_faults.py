"""What befalls a cluster in bench/soak.py: each kind of fault is a function of the soak, and leaves the cluster as able as before."""

import contextlib
import errno
import os
import pathlib
import signal
import time

# A fault that may cost committed steps: more is lost at once than `elastic.replicas` promises to survive.
MAY_ROLL_BACK = set()
KINDS = {}


def kind(name, may_roll_back=False):
    def add(function):
        KINDS[name] = function
        if may_roll_back:
            MAY_ROLL_BACK.add(name)
        return function
    return add


@kind("kill a rank")
def kill_rank(soak):
    os.kill(soak.process_of(soak.draw.randrange(soak.world())), signal.SIGKILL)


@kind("kill an idle worker")
def kill_idle(soak):
    os.kill(soak.draw.choice(soak.idle_processes()), signal.SIGKILL)


@kind("kill a rank, and its successor on that device")
def kill_twice(soak):
    pid = soak.process_of(soak.draw.randrange(soak.world()))
    node, device = soak.place_of(pid)
    os.kill(pid, signal.SIGKILL)
    successor = soak.wait_for(lambda: soak.devices(node).get(device) not in (None, pid) and soak.devices(node)[device],
                              "a successor")
    os.kill(successor, signal.SIGKILL)


def freeze(soak, seconds):
    pid = soak.process_of(soak.draw.randrange(soak.world()))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@kind("freeze a rank for longer than the detection takes")
def freeze_long(soak):
    freeze(soak, 2 * soak.failure_detection)


@kind("freeze a rank for a moment")
def freeze_short(soak):
    freeze(soak, 0.2 * soak.failure_detection)


@kind("kill the coordinator")
def kill_coordinator(soak):
    soak.restart_coordinator(away=soak.draw.uniform(0, 1))


@kind("kill a rank, and the coordinator while the job recovers")
def kill_rank_and_coordinator(soak):
    kill_rank(soak)
    time.sleep(soak.draw.uniform(0, 0.1))
    soak.restart_coordinator(away=soak.draw.uniform(0, 0.5))


@kind("drain a worker")
def drain(soak):
    worker = soak.worker_of(soak.draw.randrange(soak.world()))
    pid = soak.process_of_worker(worker)
    node, _ = soak.place_of(pid)
    soak.case.sherd("drain", worker, check=0)
    soak.wait_for(lambda: not soak.harness.alive(pid), "the drained worker ended", limit=40)
    # Its supervisor leaves it at rest.
    soak.replace_nodes([node], signal.SIGTERM)


@kind("SIGTERM to a worker")
def preempt(soak):
    pid = soak.process_of(soak.draw.randrange(soak.world()))
    node, _ = soak.place_of(pid)
    os.kill(pid, signal.SIGTERM)
    soak.wait_for(lambda: not soak.harness.alive(pid), "the worker ended", limit=40)
    soak.replace_nodes([node], signal.SIGTERM)


@kind("SIGTERM to all nodes, and others come")
def preempt_all(soak):
    soak.replace_nodes(soak.nodes, signal.SIGTERM)


@kind("kill a node: a supervisor and its workers", may_roll_back=True)
def kill_node(soak):
    soak.replace_nodes([soak.draw.choice(soak.nodes)], signal.SIGKILL)


@kind("kill two ranks that hold nothing of each other")
def kill_two(soak):
    if soak.world() < 4:
        return kill_rank(soak)
    first = soak.draw.randrange(soak.world())
    victims = [soak.process_of(rank % soak.world()) for rank in (first, first + 2)]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


def kill_with_holder(soak):
    first = soak.draw.randrange(soak.world())
    victims = {soak.process_of(rank % soak.world()) for rank in (first, first + 1)}
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


@kind("kill a rank and who holds its copy", may_roll_back=True)
def kill_both(soak):
    kill_with_holder(soak)


def newest_checkpoint(soak):
    """Waits for one with another one before it, which the job can go back to; None when the job ends before."""
    def newest():
        found = sorted(soak.output.glob("step-*-epoch-*/manifest.json"))
        return found[-1].parent if len(found) > 1 else soak.feed.over()

    found = soak.wait_for(newest, "two checkpoints")
    return None if found is True else found


@kind("a bit of the newest checkpoint flips, then a rank and its holder die", may_roll_back=True)
def flip_bit(soak):
    with contextlib.suppress(FileNotFoundError):  # a newer one took its place
        checkpoint = newest_checkpoint(soak)
        if checkpoint is None:
            return
        shard = soak.draw.choice(sorted(checkpoint.glob("*.safetensors")))
        content = bytearray(shard.read_bytes())
        content[soak.draw.randrange(len(content))] ^= 1 << soak.draw.randrange(8)
        shard.write_bytes(content)
    kill_with_holder(soak)


@kind("the newest checkpoint is deleted, then a rank and its holder die", may_roll_back=True)
def delete_checkpoint(soak):
    checkpoint = newest_checkpoint(soak)
    if checkpoint is None:
        return
    for path in sorted(checkpoint.glob("*")):
        path.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        checkpoint.rmdir()
    kill_with_holder(soak)


@kind("the disk is full for a while")
def fill_disk(soak):
    place = soak.feed.place()
    filler = soak.disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        size = 1 << 20
        while size >= 512:
            try:
                file.write(b"x" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    try:
        soak.feed.await_event(lambda event: event["event"] == "checkpoint" and event["error"] or event["event"] == "done",
                              "a save fails for want of space", place)
    finally:
        filler.unlink()


@kind("a watching client is killed")
def kill_watcher(soak):
    soak.watcher.process.kill()
    soak.watcher = soak.case.follow(soak.job)


@kind("the job is cancelled, another one follows")
def cancel(soak):
    soak.end_job(cancel=True)
    soak.begin_job()


def descriptors(pid, prefix):
    """Descriptors of a process whose target begins so."""
    count = 0
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(entry).startswith(prefix)
    return count
