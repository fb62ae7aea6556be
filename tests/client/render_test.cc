#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "client/exit_codes.h"
#include "client/job_file.h"
#include "client/ledger_order.h"
#include "client/progress.h"
#include "client/render_json.h"
#include "client/render_text.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

template <typename Message>
Message Parse(const char* text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

v1::JobEvent Event(const char* text) { return Parse<v1::JobEvent>(text); }

constexpr char kStep[] =
    "sequence: 4 step { step: 10 epoch: 1 loss: 2.5 grad_norm: 0.75 lr: 3e-4 tokens: 8192 "
    "tokens_per_second: 12345.6 step_ms: 663.5 exposed_ms: 12.5 }";
constexpr char kLedger[] =
    "sequence: 9 ledger { rank: 1 "
    "memory { key: 'peak' value { predicted: 3145728 measured: 3145729 } } "
    "memory { key: 'params' value { predicted: 1048576 measured: 1048576 } } "
    "memory { key: 'novel' value { predicted: 5 measured: 6 } } "
    "wire { key: 'total' value { bytes { predicted: 2048 measured: 2048 } "
    "                            messages { predicted: 4 measured: 4 } } } "
    "wire { key: 'all_gather' value { bytes { predicted: 2048 measured: 2048 } "
    "                                 messages { predicted: 4 measured: 4 } } } "
    "process_bytes: 3300000 }";

TEST(RenderJson, WritesEveryEventAsDocumented) {
  EXPECT_EQ(ToLine(EventJson(Event(kStep))),
            R"({"event":"step","step":10,"epoch":1,"loss":2.5,"grad_norm":0.75,"lr":0.0003,)"
            R"("tokens":8192,"tokens_per_second":12345.6,"step_ms":663.5,"exposed_ms":12.5})");
  EXPECT_EQ(ToLine(EventJson(Event("eval { step: 5 epoch: 1 loss: 2.25 tokens: 100 }"))),
            R"({"event":"eval","step":5,"epoch":1,"loss":2.25,"tokens":100})");
  EXPECT_EQ(ToLine(EventJson(Event("epoch { epoch: 2 world: 4 reason: 'x' resumed_step: 7 }"))),
            R"({"event":"epoch","epoch":2,"world":4,"reason":"x","resumed_step":7})");
  EXPECT_EQ(ToLine(EventJson(Event("epoch { epoch: 2 world: 4 reason: 'x' resumed_step: 7 "
                                   "recovery_seconds { key: 'restore' value: 0.5 } "
                                   "recovery_seconds { key: 'detect' value: 3 } }"))),
            R"({"event":"epoch","epoch":2,"world":4,"reason":"x","resumed_step":7,)"
            R"("recovery_seconds":{"detect":3.0,"restore":0.5}})");
  EXPECT_EQ(ToLine(EventJson(Event("rollback { from_step: 9 to_step: 4 reason: 'x' }"))),
            R"({"event":"rollback","from_step":9,"to_step":4,"reason":"x"})");
  EXPECT_EQ(ToLine(EventJson(Event("checkpoint { step: 9 epoch: 2 path: 'out/a' bytes: 5 "
                                   "seconds: 0.25 }"))),
            R"({"event":"checkpoint","step":9,"epoch":2,"path":"out/a","bytes":5,"seconds":0.25,)"
            R"("error":""})");
  EXPECT_EQ(ToLine(EventJson(Event("warning { kind: 'replicas' rank: -1 text: 'x' }"))),
            R"({"event":"warning","kind":"replicas","rank":null,"text":"x"})");
  EXPECT_EQ(ToLine(EventJson(Event(kLedger))),
            R"({"event":"ledger","rank":1,"memory":{)"
            R"("params":{"predicted":1048576,"measured":1048576},)"
            R"("novel":{"predicted":5,"measured":6},)"
            R"("peak":{"predicted":3145728,"measured":3145729}},"wire":{)"
            R"("all_gather":{"predicted":2048,"measured":2048,)"
            R"("messages":{"predicted":4,"measured":4}},)"
            R"("total":{"predicted":2048,"measured":2048,)"
            R"("messages":{"predicted":4,"measured":4}}},"process_bytes":3300000,)"
            R"("optimizer_location":"device"})");
  EXPECT_EQ(
      ToLine(EventJson(Event("done { state: JOB_STATE_FAILED steps: 3 reason: 'rank 1 died' }"))),
      R"({"event":"done","state":"FAILED","steps":3,"reason":"rank 1 died","weights_path":""})");
  EXPECT_EQ(ToLine(EventJson(Event("state { state: JOB_STATE_QUEUED reason: 'no workers' }"))),
            R"({"event":"state","state":"QUEUED","reason":"no workers"})");
  EXPECT_EQ(ToLine(EventJson(Event("log { rank: 2 text: 'a\"b\\n' }"))),
            R"({"event":"log","rank":2,"text":"a\"b\n"})");
  EXPECT_EQ(ToLine(EventJson(Event("sequence: 3"))), R"({"event":"unknown","sequence":3})");
}

// Whoever compares two loss curves compares bits.
TEST(RenderJson, NumbersReadBackBitForBit) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    v1::JobEvent event;
    event.mutable_step()->set_loss(value);
    const Json back = Json::parse(ToLine(EventJson(event)));
    EXPECT_EQ(std::bit_cast<uint64_t>(back["loss"].get<double>()), std::bit_cast<uint64_t>(value));
  }
}

TEST(RenderJson, IsJsonWhateverComes) {
  v1::JobEvent event;
  event.mutable_step()->set_loss(std::numeric_limits<double>::quiet_NaN());
  event.mutable_step()->set_grad_norm(std::numeric_limits<double>::infinity());
  const Json step = Json::parse(ToLine(EventJson(event)));
  EXPECT_TRUE(step["loss"].is_null());
  EXPECT_TRUE(step["grad_norm"].is_null());
  event.mutable_log()->set_text("\xff\x01 text");
  EXPECT_THAT(Json::parse(ToLine(EventJson(event)))["text"].get<std::string>(),
              ::testing::HasSubstr(" text"));
}

// `sherd get -o yaml` prints a specification that can be submitted again.
TEST(RenderJson, ASpecificationReadsBackAsItself) {
  for (const char* text :
       {"name: a\nmodel: {preset: gpt2-bytes}\ndata: {train: [x, 'y z: #']}\n"
        "train: {steps: 3}\n",
        "name: b\npriority: -4\nmodel: {layers: 1, hidden: 8, heads: 2, vocab: "
        "300, context: 5, tie_embeddings: false}\ndata: {train: [x], eval: [z]}\n"
        "train: {steps: 9, seed: 77, optimizer: {lr: 1e-3, betas: [0, 0.5], "
        "weight_decay: 0}, schedule: {kind: constant, warmup: 2, min_lr: 1e-9}, "
        "grad_clip: 0, eval_every: 2}\nparallel: {strategy: ddp, prefetch: 0, "
        "reshard_after_forward: false}\nprecision: {compute: fp32, reproducible: false}\nelastic: "
        "{max_workers: 3, replicas: 0, failure_detection: 1s, on_nan: rollback, max_rollbacks: 0}\n"
        "checkpoint: {dir: w, every: 7, keep: 0, resume: out/w/step-00000007-epoch-1}\n",
        "name: e\nmodel: {preset: gpt2-bytes}\ndata: {train: [x]}\n"
        "train: {steps: 90, optimizer: {groups: [{parameters: '*.bias', weight_decay: 0}, "
        "{parameters: 'h.1*', lr_scale: 0.5}, {parameters: '*'}]}, schedule: {kind: wsd, decay: 7},"
        " z_loss: 1e-4, label_smoothing: 0.1, freeze: ['wte.*', wpe.weight]}\n",
        "name: c\nmodel: {preset: llama3-1b}\ndata: {train: [x]}\ntrain: {steps: 3}\n",
        "name: d\nmodel: {arch: llama, layers: 1, hidden: 24, heads: 4, kv_heads: 2, vocab: 300, "
        "context: 5, norm_eps: 1e-6, rope_theta: 123.25, rope_scaling: {factor: 8, "
        "low_freq_factor: 2, high_freq_factor: 3.5, original_context: 77}}\n"
        "data: {train: [x]}\ntrain: {steps: 3}\nparallel: {recompute: block, tensor: 2, "
        "sequence_parallel: true, offload: optimizer}\n"}) {
    const absl::StatusOr<JobFile> file = ParseJobFile(text, "a", {});
    ASSERT_TRUE(file.ok()) << file.status();
    const v1::JobSpec spec = NormalizeJobSpec(file->spec);
    for (const std::string& rendered : {ToYaml(SpecJson(spec)), ToLine(SpecJson(spec))}) {
      const absl::StatusOr<JobFile> back = ParseJobFile(rendered, "b", {});
      ASSERT_TRUE(back.ok()) << back.status() << "\n" << rendered;
      EXPECT_TRUE(
          google::protobuf::util::MessageDifferencer::Equals(NormalizeJobSpec(back->spec), spec))
          << rendered << back->spec.DebugString();
    }
  }
}

TEST(RenderJson, LaysOutYaml) {
  const Json json = {{"id", "j1"},
                     {"list", Json::array({1, Json{{"a", nullptr}}})},
                     {"empty", Json::array()},
                     {"text", "a: b"}};
  EXPECT_EQ(ToYaml(json),
            "id: \"j1\"\nlist:\n  - 1\n  -\n    a: null\nempty: []\ntext: \"a: b\"\n");
  EXPECT_EQ(ToYaml(Json::array()), "[]\n");
}

TEST(RenderText, SaysNumbersShortly) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.0 KiB");
  EXPECT_EQ(HumanBytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(HumanBytes(int64_t{45298483}), "43.2 MiB");
  EXPECT_EQ(HumanBytes(std::numeric_limits<int64_t>::max()), "8192.0 PiB");
  EXPECT_EQ(HumanBytes(-2048), "-2.0 KiB");
  EXPECT_EQ(WithThousands(0), "0");
  EXPECT_EQ(WithThousands(999), "999");
  EXPECT_EQ(WithThousands(1234567), "1,234,567");
  EXPECT_EQ(WithThousands(-123456), "-123,456");
  EXPECT_EQ(HumanDuration(absl::Milliseconds(10)), "<1s");
  EXPECT_EQ(HumanDuration(absl::Seconds(59)), "59s");
  EXPECT_EQ(HumanDuration(absl::Seconds(123)), "2m03s");
  EXPECT_EQ(HumanDuration(absl::Seconds(7500)), "2h05m");
  EXPECT_EQ(HumanDuration(absl::InfiniteDuration()), "more than a year");
}

TEST(RenderText, TheBarFitsATerminal) {
  v1::StepReport step;
  step.set_step(123'456);
  step.set_loss(12.3456);
  step.set_tokens_per_second(123'456);
  EXPECT_LE(BarLine(step, 999'999, absl::Hours(99)).size(), 80u);
  EXPECT_EQ(BarLine(step, 0, absl::ZeroDuration()),
            "[################] step 123456  loss 12.346  123,456 tokens/s");
  step.set_step(20);
  EXPECT_EQ(BarLine(step, 20, absl::ZeroDuration()),
            "[################] step 20/20  loss 12.346  123,456 tokens/s");
}

TEST(RenderText, AlignsByCharactersNotBytes) {
  EXPECT_EQ(Table({{"A", "N", "B"}, {"äö", "1", "x"}, {"b", "22", "yy"}}, {false, true, false}),
            "A    N  B\näö   1  x\nb   22  yy\n");
}

TEST(RenderText, ShowsPredictedBesideMeasured) {
  EXPECT_EQ(LedgerTables({}), "");
  v1::RankLedger other = Event(kLedger).ledger();
  other.set_rank(0);
  other.mutable_memory()->erase("novel");
  EXPECT_EQ(LedgerTables({Event(kLedger).ledger(), other, Event(kLedger).ledger()}),
            "Peak memory by rank and pool: predicted / measured\n"
            "pool                       rank 0                    rank 1\n"
            "params          1.0 MiB / 1.0 MiB         1.0 MiB / 1.0 MiB\n"
            "novel                           -                  5 != 6 B\n"
            "peak     3,145,728 != 3,145,729 B  3,145,728 != 3,145,729 B\n"
            "process                   3.1 MiB                   3.1 MiB\n"
            "\n"
            "Bytes sent by each rank in one step: predicted / measured\n"
            "collective             rank 0             rank 1\n"
            "all_gather  2.0 KiB / 2.0 KiB  2.0 KiB / 2.0 KiB\n"
            "total       2.0 KiB / 2.0 KiB  2.0 KiB / 2.0 KiB\n"
            "\n"
            "predicted and measured differ in 3 lines: see !=, or the messages in -o json\n");
}

// One byte or one message more than predicted is no agreement.
TEST(RenderText, SaysThatTheLedgersAreExactOnlyWhenTheyAre) {
  v1::RankLedger exact = Event(kLedger).ledger();
  for (auto& [pool, line] : *exact.mutable_memory()) line.set_measured(line.predicted());
  v1::RankLedger other = exact;
  other.set_rank(2);
  EXPECT_THAT(LedgerTables({exact, other}),
              ::testing::EndsWith("\n\npredicted = measured to the byte on all 2 ranks\n"));
  (*other.mutable_wire())["total"].mutable_messages()->set_measured(5);
  EXPECT_THAT(LedgerTables({exact, other}), ::testing::HasSubstr("differ in 1 line:"));
  for (auto& [name, line] : *exact.mutable_wire()) line.Clear();
  EXPECT_THAT(LedgerTables({exact}),
              ::testing::EndsWith("\n\nBytes sent by each rank in one step: none\n"
                                  "\npredicted = measured to the byte\n"));
}

TEST(RenderText, ShowsBytesByGroupAndWhereTheOptimizerStateLives) {
  v1::RankLedger ledger = Event(kLedger).ledger();
  EXPECT_THAT(LedgerTables({ledger}), ::testing::Not(::testing::HasSubstr("host memory")));
  ledger.set_offload(v1::OFFLOAD_OPTIMIZER);
  const auto set = [&](const char* group, int64_t bytes) {
    v1::LedgerLine& line = *(*ledger.mutable_wire_by_group())[group].mutable_bytes();
    line.set_predicted(bytes);
    line.set_measured(bytes);
  };
  set("data", 1024);
  const std::string one_group = LedgerTables({ledger});
  EXPECT_THAT(one_group, ::testing::HasSubstr("\noptimizer state lives in host memory"));
  EXPECT_THAT(one_group, ::testing::Not(::testing::HasSubstr("by the group")));
  set("tensor", 1024);
  EXPECT_THAT(LedgerTables({ledger}),
              ::testing::HasSubstr("\nThe same by the group that they went round in\n"
                                   "group              rank 1\n"
                                   "tensor  1.0 KiB / 1.0 KiB\n"
                                   "data    1.0 KiB / 1.0 KiB\n"));
  // These count as well.
  EXPECT_THAT(LedgerTables({ledger}), ::testing::HasSubstr("differ in 2 lines:"));
  (*ledger.mutable_wire_by_group())["data"].mutable_messages()->set_measured(1);
  EXPECT_THAT(LedgerTables({ledger}), ::testing::HasSubstr("differ in 3 lines:"));
  v1::JobEvent event;
  *event.mutable_ledger() = ledger;
  const Json json = EventJson(event);
  EXPECT_EQ(json["optimizer_location"], "host");
  EXPECT_EQ(json["wire_by_group"]["tensor"]["measured"], 1024);
}

TEST(RenderText, ShowsWhatTheHostHoldsBesideADevice) {
  v1::RankLedger ledger = Event(kLedger).ledger();
  for (auto& [pool, line] : *ledger.mutable_memory()) line.set_measured(line.predicted());
  EXPECT_THAT(LedgerTables({ledger}), ::testing::Not(::testing::HasSubstr("On the hosts")));
  v1::LedgerLine& home = (*ledger.mutable_host_memory())["optimizer"];
  home.set_predicted(1024);
  home.set_measured(1024);
  const std::string exact = LedgerTables({ledger});
  EXPECT_THAT(exact, ::testing::HasSubstr("\nOn the hosts beside it: predicted / measured\n"
                                          "pool                  rank 1\n"
                                          "optimizer  1.0 KiB / 1.0 KiB\n"));
  EXPECT_THAT(exact, ::testing::HasSubstr("predicted = measured to the byte"));
  home.set_measured(1025);
  EXPECT_THAT(LedgerTables({ledger}), ::testing::HasSubstr("differ in 1 line:"));
  v1::JobEvent event;
  *event.mutable_ledger() = ledger;
  EXPECT_EQ(EventJson(event)["host_memory"]["optimizer"]["measured"], 1025);
}

TEST(RenderText, ListsJobsAndWorkers) {
  const auto job = Parse<v1::Job>(
      "id: 'j1' name: 'tiny' state: JOB_STATE_FAILED reason: 'rank 1 died' step: 5 loss: 2.5 "
      "submitted_unix_ms: 1767225600000 spec { train { steps: 9 } } "
      "ranks { rank: 0 worker_id: 'h/cpu:0' status: 'released' }");
  EXPECT_EQ(JobsTable({job}),
            "ID  NAME  STATE   STEP    LOSS  SUBMITTED                REASON\n"
            "j1  tiny  FAILED   5/9  2.5000  2026-01-01 00:00:00 UTC  rank 1 died\n");
  EXPECT_THAT(JobText(job), ::testing::HasSubstr("RANK  WORKER   STATUS    REASON\n"
                                                 "   0  h/cpu:0  released  -\n"));
  EXPECT_EQ(
      WorkersTable({Parse<v1::Worker>("id: 'h/cpu:0' device: 'cpu:0' host: 'h' status: 'idle'")}),
      "ID       DEVICE  HOST  STATUS  JOB  RANK\n"
      "h/cpu:0  cpu:0   h     idle    -       -\n");
}

TEST(Progress, PrintsPlainLinesOffATerminal) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, false, 200}, out, chatter);
  progress.Show(Event("state { state: JOB_STATE_RUNNING }"));
  for (int step = 1; step <= 20; ++step) {
    v1::JobEvent event = Event(kStep);
    event.mutable_step()->set_step(step);
    progress.Show(event);
  }
  progress.Show(Event("eval { step: 20 loss: 2.25 tokens: 1000 }"));
  progress.Show(Event("log { rank: 1 text: 'hello' }"));
  EXPECT_FALSE(progress.done().has_value());
  progress.Show(Event("done { state: JOB_STATE_SUCCEEDED steps: 20 }"));
  progress.Finish();
  EXPECT_EQ(out.str(),
            "step   1/200  loss 2.5000  grad norm 0.750  lr 3.00e-04  12,346 tokens/s  664 ms  ETA "
            "2m12s\n"
            "step  10/200  loss 2.5000  grad norm 0.750  lr 3.00e-04  12,346 tokens/s  664 ms  ETA "
            "2m06s\n"
            "step  20/200  loss 2.5000  grad norm 0.750  lr 3.00e-04  12,346 tokens/s  664 ms  ETA "
            "1m59s\n"
            "held-out loss 2.2500 nats a token after step 20 (1,000 tokens)\n");
  EXPECT_EQ(chatter.str(), "RUNNING\n[rank 1] hello\n");
  EXPECT_EQ(progress.done()->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST(Progress, EndsWithTheVerdictOfAJobThatDidNotSucceed) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, false, 20}, out, chatter);
  progress.Show(Event(kLedger));
  progress.Show(Event("done { state: JOB_STATE_FAILED reason: 'rank 1 died' }"));
  progress.Finish();
  EXPECT_EQ(chatter.str(), "\nFAILED: rank 1 died\n");
}

TEST(Progress, DrawsABarOnATerminalAndDataOnStdout) {
  std::ostringstream out, chatter;
  Progress progress({OutputFormat::kTable, true, 20}, out, chatter);
  progress.Show(Event(kStep));
  EXPECT_EQ(out.str(), "");
  EXPECT_EQ(chatter.str(),
            "\r[########--------] step 10/20  loss 2.500  12,346 tokens/s  ETA 6s\x1b[K");
  progress.Finish();
  EXPECT_THAT(out.str(), ::testing::HasSubstr("step 10/20"));
}

TEST(Progress, GivesProgramsOneEventALine) {
  std::ostringstream json, yaml, chatter;
  Progress as_json({OutputFormat::kJson, false, 20}, json, chatter);
  Progress as_yaml({OutputFormat::kYaml, false, 20}, yaml, chatter);
  for (Progress* progress : {&as_json, &as_yaml}) {
    progress->Show(Event("state { state: JOB_STATE_QUEUED }"));
    progress->Show(Event(kLedger));
    progress->Finish();
  }
  const std::string lines = json.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_THAT(yaml.str(), ::testing::StartsWith("---\nevent: \"state\"\nstate: \"QUEUED\"\n"));
  EXPECT_EQ(chatter.str(), "");
}

// F51: no failed job ends in 0.
TEST(ExitCodes, AreTheContract) {
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_SUCCEEDED), ExitCode{0});
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_FAILED), ExitCode{100});
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_CANCELLED), ExitCode{103});
  for (const v1::JobState state :
       {v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_FORMING,
        v1::JOB_STATE_RUNNING, v1::JOB_STATE_RECOVERING}) {
    EXPECT_EQ(ExitCodeOf(state), ExitCode{101});
  }
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), ExitCode{102});
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), ExitCode{2});
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), ExitCode{1});
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode{0});
}

}  // namespace
}  // namespace sherd
