"""`sherd plan`: what it says beforehand is what a run is held against."""

import json
import unittest

from harness import EndToEnd


class Plan(EndToEnd):
    def plan(self, *arguments, check=0):
        return json.loads(self.sherd("plan", *arguments, "-o", "json", check=check).stdout)

    def test_a_plan_is_the_predicted_half_of_the_ledger_of_its_run(self):  # F17
        job = self.job(steps=2, workers=3, out="weights")
        settings = ("--set", "train.global_batch=5", "--set", "parallel.strategy=zero3")
        plan = self.plan(job, "--workers", 3, *settings)
        result = self.sherd("run", job, "--workers", 3, *settings, "--out", self.scratch / "out", "-o", "json",
                            check=0)
        ledgers = {event["rank"]: event for event in map(json.loads, result.stdout.splitlines())
                   if event["event"] == "ledger"}
        self.assertEqual(sorted(ledgers), [0, 1, 2])
        self.assertEqual([rank["rank"] for rank in plan["ranks"]], [0, 2])
        for rank in plan["ranks"]:
            ledger = ledgers[rank["rank"]]
            self.assertEqual(rank["memory"], {pool: line["predicted"] for pool, line in ledger["memory"].items()})
            self.assertEqual(rank["wire"], {
                collective: {"bytes": line["predicted"], "messages": line["messages"]["predicted"]}
                for collective, line in ledger["wire"].items()})
        self.assertEqual(plan["peak_bytes"], ledgers[0]["memory"]["peak"]["measured"])
        self.assertEqual(plan["wire_bytes_per_step"]["total"], ledgers[0]["wire"]["total"]["measured"])

    def test_it_looks_at_no_data_and_leaves_nothing(self):
        job = self.job(text="/nowhere/at/all.txt")
        before = sorted(self.scratch.iterdir())
        plan = self.plan(job, "--workers", 2, "--explain", "--device-memory", "1GiB")
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["operations"][0]["operation"], "gather embedding round 0")
        comparison = self.plan(job, "--workers", 2, "--compare")
        self.assertEqual([row["name"] for row in comparison["strategies"]],
                         ["ddp", "zero1", "zero1 all_reduce", "zero2", "zero3", "zero3 kept"])
        self.assertIn(comparison["recommendation"]["name"], [row["name"] for row in comparison["strategies"]])
        self.assertEqual(sorted(self.scratch.iterdir()), before)

    def test_a_comparison_ends_with_hybrid_and_each_row_says_how_to_have_it(self):
        hybrid = ("parallel.strategy=hybrid", "parallel.shard_group=2", "elastic.max_workers=5")
        # Settings of the job, workers → of the last row: workers, tensor degree; workers of the others.
        for settings, workers, grouped, tensor, others in (((), 4, 4, None, 4), (("parallel.tensor=2",), 8, 8, 2, 8),
                                                           (hybrid, 5, 4, None, 5)):
            with self.subTest(settings):
                path = self.job(workers=min(workers, grouped))

                def plan(*more):
                    words = [word for setting in ("train.global_batch=8", *settings, *more) for word in ("--set", setting)]
                    return path, "--workers", workers, *words

                rows = self.plan(*plan(), "--compare")["strategies"]
                self.assertEqual([row["name"] for row in rows],
                                 ["ddp", "zero1", "zero1 all_reduce", "zero2", "zero3", "zero3 kept", "hybrid"])
                self.assertEqual([row["workers"] for row in rows], [others] * 6 + [grouped])
                self.assertEqual(rows[-1]["shard_group"], 2)
                self.assertEqual(rows[-1].get("tensor"), tensor)
                self.assertLessEqual({"parallel.strategy=hybrid", "parallel.shard_group=2"}, set(rows[-1]["settings"]))
                for row in rows:
                    again = self.plan(*plan(*row["settings"]))
                    for what in ("name", "workers", "peak_bytes", "wire_bytes_per_step", "settings"):
                        self.assertEqual(again[what], row[what], f"{row['name']}: {what}")

    def test_what_does_not_fit_names_its_largest_consumers(self):
        result = self.sherd("plan", self.job(), "--workers", 2, "--host-memory", "1MiB", check=1)
        self.assertIn("does not fit", result.stdout)
        self.assertRegex(result.stderr, r"zero3 on 2 workers does not fit: .* short; the largest of a rank: \w+ ")
        self.sherd("plan", self.job(), "--workers", 2, "--host-memory", "1MiB", "--compare", check=1)
        self.sherd("plan", "--params", "7e9", "--workers", 4, "--strategy", "zero2", "--device-memory", "48GiB",
                   check=0)

    def test_theory_needs_no_model(self):
        for strategy, state, wire in (("ddp", 112, 21), ("zero1", 49, 21), ("zero2", 38.5, 21), ("zero3", 28, 31.5)):
            plan = self.plan("--params", "7e9", "--workers", 4, "--strategy", strategy)
            self.assertEqual(plan["model_state_bytes"]["total"], state * 1e9)
            self.assertEqual(plan["wire_bytes_per_step"]["total"], wire * 1e9)
            self.assertIsNone(plan["peak_bytes"])

    def test_bad_usage_is_one_sentence(self):
        for arguments in (("--params", "7e9", "--workers", 4, "--strategy", "zero9"),
                          ("--params", "nan", "--workers", 4, "--strategy", "zero3"),
                          ("--params", "-7e9", "--workers", 4, "--strategy", "zero3"),
                          (self.job(), "--params", "7e9", "--workers", 4),
                          (self.job(), "--workers", 0),
                          (self.job(),)):
            result = self.sherd("plan", *arguments, check=2)
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
