"""Workers that reach the coordinator through a relay, which loses, delays and breaks what goes over it."""

import unittest

import elastic_harness
from harness import wait_for
from relay import DOWN, UP, Relay

PAIRS = ("elastic.failure_detection=2s",)
STEPS = 1200


class Relayed(elastic_harness.Elastic):
    def setUp(self):
        super().setUp()
        self.start_coordinator("--failure-detection", "2s")
        self.direct = self.start_workers(4, "--name", "direct")
        self.relay = Relay(self.address)
        self.stack.callback(self.relay.close)
        self.relayed = self.start("sherd-worker", "--coordinator", self.relay.address, "--devices", "cpu:1", "--name", "relayed",
                                  "--data-root", self.scratch, "--output-root", self.scratch)
        self.wait_for_workers(5)
        self.expected = self.undisturbed("relay", *PAIRS, steps=STEPS, workers=5)
        self.wait_for_workers(5)

    def begin(self, workers):
        """A job in which the worker behind the relay has a rank, as all others have, or with the first four alone."""
        job = self.elastic_job("relayed", *PAIRS, steps=STEPS, workers=workers)
        self.events = self.follow(job)
        self.await_step(20)
        return job

    def await_step(self, step):
        self.events.await_event(lambda event: event["event"] == "step" and event["step"] >= step, f"step {step}")

    def await_epoch(self, epoch):
        self.events.await_event(lambda event: event["event"] == "epoch" and event["epoch"] >= epoch, f"epoch {epoch}")

    def finish(self, epochs=None):
        """The whole feed, which must be that of a job that nothing befell, and so many epochs."""
        events = self.events.finish(limit=120)
        self.assertEqual(events[-1]["state"], "SUCCEEDED", events[-1])
        self.assertEqual(elastic_harness.curve(events), self.expected)
        self.assertFalse([event for event in events if event["event"] == "rollback"])
        if epochs is not None:
            self.assertEqual(len(self.epochs(events)), epochs)
        return events

    def test_delay_ends_no_epoch(self):
        self.relay.set_delay(0.1)
        self.begin(5)
        self.finish(epochs=1)

    def test_a_worker_that_cannot_be_heard_is_replaced_and_comes_back(self):  # F27
        job = self.begin(5)
        self.relay.lose(UP)
        self.await_epoch(2)
        self.assertNotIn("relayed/cpu:0", [rank["worker"] for rank in self.get(job)["ranks"]])
        self.relay.lose()
        self.finish()
        self.wait_for_workers(5)

    def test_a_worker_that_hears_nothing_trains_on(self):
        job = self.begin(5)
        self.relay.lose(DOWN)
        step = self.get(job)["step"]
        self.await_step(step + 100)
        self.assertEqual(self.get(job)["epoch"], 1)
        self.relay.lose()
        self.finish(epochs=1)

    def test_a_death_while_one_hears_nothing_is_survived(self):
        job = self.begin(5)
        self.relay.lose(DOWN)
        self.kill_rank(job, 1, self.direct)
        wait_for(lambda: self.state(job) == "RECOVERING", "the death is known")
        self.relay.lose()
        self.finish()

    def test_links_that_break_again_and_again_lose_nothing(self):
        self.begin(5)
        for _ in range(10):
            place = self.events.place()
            self.relay.break_links()
            self.events.await_event(lambda event: event["event"] in ("step", "done"), "a step", place)
        self.finish()
        self.wait_for_workers(5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
