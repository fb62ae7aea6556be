// What `sherd plan` says.

#include "client/render_plan.h"

#include <string>
#include <vector>

#include "client/plan_request.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/plan_flags_fixture.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

PlanFlags Comparison(const char* device_memory) {
  PlanFlags flags = SevenBillion();
  flags.strategy.reset();
  flags.compare = true;
  flags.device_memory = device_memory;
  return flags;
}

std::vector<PlanReport> TheoryReports(const PlanRequest& request) {
  std::vector<PlanReport> reports;
  for (const TheoryQuestion& question : request.theory) {
    reports.push_back(ReportOnTheory(question, request.limits, request.known_bandwidth));
  }
  return reports;
}

v1::JobSpec TensorByData() {
  v1::JobSpec spec = testing::MakeJob("zero3", v1::DATA_TYPE_BF16, 4);
  spec.mutable_parallel()->set_tensor(2);
  spec.mutable_parallel()->set_offload(v1::OFFLOAD_OPTIMIZER);
  return spec;
}

TEST(RenderPlan, WritesTheoryAsDocumented) {
  const PlanRequest request = Read(SevenBillion());
  const std::string line = ToLine(PlanJson(TheoryReports(request).front(), request));
  EXPECT_EQ(line, R"({"strategy":"zero3","name":"zero3","workers":4,"parameters":7000000000,)"
                  R"("model_state_bytes":{"params":3500000000,"grads":3500000000,)"
                  R"("optimizer":21000000000,"total":28000000000},"redundant_bytes":0,)"
                  R"("gathered_bytes":null,"wire_bytes_per_step":{"all_gather":21000000000,)"
                  R"("reduce_scatter":10500000000,"all_reduce":0,"total":31500000000},)"
                  R"("peak_bytes":null,"fits":null,"needs":"model_state","limits":[],)"
                  R"("estimate":{"step_seconds":null,)"
                  R"("compute_seconds":null,"exposed_seconds":null,"communication_seconds":null,)"
                  R"("cost_model":null}})");
}

TEST(RenderPlan, SaysTheoryInDecimalAndCapacityInBinaryUnits) {
  PlanFlags flags = SevenBillion();
  flags.device_memory = "80GiB";
  const PlanRequest request = Read(flags);
  const std::string text = PlanText(TheoryReports(request).front(), request);
  EXPECT_THAT(text, HasSubstr("total      28.0 GB\n"));
  EXPECT_THAT(text, HasSubstr("total           31.5 GB\n"));
  EXPECT_THAT(text,
              HasSubstr("fits: 26.1 GiB of model state in 80.0 GiB of device memory, 53.9 GiB "
                        "to spare\n"));
}

TEST(RenderPlan, RecommendsWithNumbers) {
  const PlanRequest request = Read(Comparison("48GiB"));
  const std::string text = ComparisonText(TheoryReports(request), request);
  EXPECT_THAT(text,
              EndsWith("\nrecommended: zero2: not the highest stage: it fits with 12.1 GiB to "
                       "spare and sends a third less than zero3; it sends no more than zero1 "
                       "and needs less memory; ddp is 56.3 GiB short of memory\n"));
  EXPECT_THAT(text, HasSubstr("no, 56.3 GiB short"));
  // Nothing is known of peaks and step times.
  EXPECT_THAT(text, AllOf(Not(HasSubstr("peak")), Not(HasSubstr("exposed"))));
  const Json json = ComparisonJson(TheoryReports(request), request);
  EXPECT_EQ(json["strategies"].size(), 7u);
  EXPECT_EQ(json["recommendation"]["name"], "zero2");
  EXPECT_EQ(json["recommendation"]["settings"][0], "parallel.strategy=zero2");
}

TEST(RenderPlan, ComparesHybridByAGroupThatStandsForAll) {
  const PlanRequest request = Read(Comparison("48GiB"));
  const Json json = ComparisonJson(TheoryReports(request), request);
  EXPECT_EQ(json["strategies"][6]["strategy"], "hybrid");
  EXPECT_EQ(json["strategies"][6]["shard_group"], 2);
  EXPECT_THAT(ComparisonText(TheoryReports(request), request), HasSubstr("\nhybrid 2 "));
}

TEST(RenderPlan, AComparisonSaysItsTensorDegreeAndRowsOfOtherWorlds) {
  const PlanRequest request = Read(OfAFile());
  v1::JobSpec spec = testing::MakeJob("zero3", v1::DATA_TYPE_BF16, 4);
  v1::JobSpec hybrid = testing::MakeJob("hybrid 2", v1::DATA_TYPE_BF16, 4);
  std::vector<PlanReport> reports = {ReportOnJob(spec, 5, request.limits, request.cost),
                                     ReportOnJob(hybrid, 4, request.limits, request.cost)};
  const std::string differ = ComparisonText(reports, request);
  EXPECT_THAT(differ, AllOf(StartsWith("5 workers, "), HasSubstr("strategy  workers "),
                            HasSubstr("\nzero3           5 "), HasSubstr("\nhybrid 2        4 ")));
  const Json settings = PlanJson(reports[1], request)["settings"];
  EXPECT_THAT(settings.dump(), HasSubstr("parallel.shard_group=2"));
  reports[0] = ReportOnJob(spec, 4, request.limits, request.cost);
  EXPECT_THAT(ComparisonText(reports, request), Not(HasSubstr("strategy  workers")));
  reports = {ReportOnJob(TensorByData(), 4, request.limits, request.cost)};
  EXPECT_THAT(ComparisonText(reports, request), StartsWith("tensor 2: 4 workers, "));
}

TEST(RenderPlan, SaysWhatAnEstimateRestsOn) {
  const PlanRequest request = Read(OfAFile());
  std::vector<PlanReport> reports;
  for (const char* strategy : {"ddp", "zero2", "zero3"}) {
    const v1::JobSpec spec = testing::MakeJob(strategy, v1::DATA_TYPE_BF16, 8);
    reports.push_back(ReportOnJob(spec, 4, request.limits, request.cost));
    reports.back().times = StepTimes{.step = 1.5};
  }
  reports[0].times->step = 1.48;
  reports[2].times->step = 2;
  EXPECT_THAT(
      ReasonText(reports, *Recommend(reports)),
      AllOf(StartsWith("zero2: not the highest stage: it sends "),
            HasSubstr("; its step is estimated at 1.50 s, about as short as ddp's of 1.48 s, "
                      "which needs "),
            EndsWith(" more memory; no memory limit was given")));
  const std::string text = ComparisonText(reports, request);
  EXPECT_THAT(text, AllOf(HasSubstr("times are estimated with the cost model cpu"),
                          HasSubstr("exposed"), HasSubstr("peak"), HasSubstr("2.00 s\n")));
}

TEST(RenderPlan, RecommendsNothingWhereNothingFits) {
  const PlanRequest request = Read(Comparison("1GiB"));
  EXPECT_TRUE(ComparisonJson(TheoryReports(request), request)["recommendation"].is_null());
  EXPECT_THAT(ComparisonText(TheoryReports(request), request), Not(HasSubstr("recommended")));
}

TEST(RenderPlan, NamesTheLargestConsumersOfWhatDoesNotFit) {
  PlanFlags flags = SevenBillion();
  flags.strategy = "ddp";
  flags.device_memory = "80GiB";
  EXPECT_EQ(ShortfallText(TheoryReports(Read(flags)).front()),
            "ddp on 4 workers does not fit: it needs 104.3 GiB of 80.0 GiB device memory, 24.3 GiB "
            "short; the largest of a rank: optimizer 78.2 GiB, grads 13.0 GiB, params 13.0 GiB");
}

TEST(RenderPlan, ShowsAJobsRanksAndOperations) {
  const v1::JobSpec spec = testing::MakeJob("zero3", v1::DATA_TYPE_BF16, 3);
  const PlanRequest request = Read(OfAFile());
  const PlanReport report = ReportOnJob(spec, 2, request.limits, request.cost);
  const std::string text = PlanText(report, request);
  for (const char* word :
       {"rank 0", "rank 1", "padding", "peak", "all_gather", "messages", "step:"}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
  const Json json = PlanJson(report, request);
  const v1::RankLedger& ledger = report.ranks.front();
  EXPECT_EQ(json["peak_bytes"], ledger.memory().at("peak").predicted());
  EXPECT_EQ(json["ranks"][1]["rank"], 1);
  EXPECT_EQ(json["ranks"][0]["wire"]["total"]["bytes"],
            ledger.wire().at("total").bytes().predicted());
  int64_t bytes = 0;
  for (const Json& operation : OperationsJson(BuildRankPlan(spec, 0, 2))) {
    bytes += operation["wire_bytes"].get<int64_t>();
  }
  EXPECT_EQ(bytes, json["wire_bytes_per_step"]["total"].get<int64_t>());
}

TEST(RenderPlan, ShowsTheGroupsAndShardsOfARank) {
  const WorldLayout layout(TensorByData(), 8);
  const std::string text = RankLayoutText(layout, 5);
  EXPECT_THAT(text, AllOf(HasSubstr("tensor  4, 5\n"), HasSubstr("data    1, 3, 5, 7\n"),
                          HasSubstr("\nh.2 ")));
  const Json json = RankLayoutJson(layout, 5);
  EXPECT_EQ(json["groups"][0], Json({{"kind", "tensor"}, {"ranks", {4, 5}}}));
  ASSERT_EQ(json["shards"].size(), 5u);
  const v1::UnitShard shard = layout.ShardsOf(5)[1];
  EXPECT_EQ(json["shards"][1]["unit"], "h.0");
  EXPECT_EQ(json["shards"][1]["begin"], shard.begin());
  EXPECT_EQ(json["shards"][1]["end"], shard.end());
  EXPECT_GT(shard.begin(), 0);
  // Of many ranks the first and the last.
  EXPECT_THAT(RankLayoutText(WorldLayout(TensorByData(), 64), 5),
              HasSubstr("data    1, 3, 5, … 63 (32 ranks)\n"));
}

TEST(RenderPlan, ShowsTheRankThatWasAskedAbout) {
  PlanFlags flags = OfAFile();
  flags.workers = "8";
  flags.rank = "7";
  const PlanRequest request = Read(flags);
  const PlanReport report = ReportOnJob(TensorByData(), 8, request.limits, request.cost, 1, 7);
  ASSERT_EQ(report.ranks.size(), 1u);
  const std::string text = PlanText(report, request);
  EXPECT_THAT(text, AllOf(StartsWith("zero3, tensor 2: 8 workers, "), HasSubstr("rank 7"),
                          Not(HasSubstr("every rank")), Not(HasSubstr("rank 0"))));
}

TEST(RenderPlan, ShowsWhatGoesRoundInWhichGroup) {
  const PlanRequest request = Read(OfAFile());
  PlanReport report = ReportOnJob(TensorByData(), 4, request.limits, request.cost);
  v1::RankLedger& ledger = report.ranks.front();
  ledger.mutable_wire_by_group()->clear();
  (*ledger.mutable_wire_by_group())["data"].mutable_bytes()->set_predicted(1024);
  report.ranks.resize(1);
  EXPECT_THAT(PlanText(report, request), Not(HasSubstr("by the group")));
  (*ledger.mutable_wire_by_group())["tensor"].mutable_bytes()->set_predicted(2048);
  EXPECT_THAT(PlanText(report, request), HasSubstr("\ntensor     2.0 KiB         0\n"
                                                   "data       1.0 KiB         0\n"));
  const Json json = PlanJson(report, request);
  EXPECT_EQ(json["ranks"][0]["wire_by_group"]["tensor"]["bytes"], 2048);
  EXPECT_EQ(json["tensor"], 2);
}

TEST(RenderPlan, SaysWhereTheOptimizerStateLives) {
  const PlanRequest request = Read(OfAFile());
  v1::JobSpec spec = TensorByData();
  PlanReport report = ReportOnJob(spec, 4, request.limits, request.cost);
  EXPECT_THAT(PlanText(report, request), HasSubstr("optimizer state lives in host memory"));
  Json json = PlanJson(report, request);
  EXPECT_EQ(json["optimizer_location"], "host");
  // On a GPU it is the host's, and a ring of chunks beside it the device's.
  const Json& on_device = json["on_devices"][0];
  EXPECT_EQ(on_device["memory"]["optimizer"], 0);
  EXPECT_GT(on_device["memory"]["staging"], json["ranks"][0]["memory"]["staging"]);
  EXPECT_GE(on_device["host_memory"]["replicas"].get<int64_t>() +
                on_device["host_memory"]["optimizer"].get<int64_t>(),
            json["ranks"][0]["memory"]["optimizer"].get<int64_t>());
  EXPECT_THAT(PlanText(report, request), HasSubstr("\nThe same on a GPU\npool"));
  spec.mutable_parallel()->set_offload(v1::OFFLOAD_NONE);
  report = ReportOnJob(spec, 4, request.limits, request.cost);
  EXPECT_THAT(PlanText(report, request), Not(HasSubstr("host memory")));
  EXPECT_EQ(PlanJson(report, request)["optimizer_location"], "device");
  EXPECT_FALSE(PlanJson(report, request).contains("on_devices"));
}

// Members of a tensor-parallel group share the model: more of them hold less each.
TEST(RenderPlan, CountsTheWholeModelAndWhatIsHeldTwice) {
  const PlanRequest request = Read(OfAFile());
  v1::JobSpec spec = TensorByData();
  const PlanReport split = ReportOnJob(spec, 4, request.limits, request.cost);
  spec.mutable_parallel()->set_tensor(1);
  const PlanReport whole = ReportOnJob(spec, 4, request.limits, request.cost);
  EXPECT_EQ(split.parameters, whole.parameters);
  EXPECT_EQ(split.data_degree(), 2);
  // zero3 holds nothing twice but what both members have whole: norms, biases, positions.
  EXPECT_EQ(whole.redundant_bytes, 0);
  EXPECT_EQ(split.redundant_bytes, 16 * (32 * 64 + 3 * 6 * 64 + 2 * 64));
}

TEST(RenderPlan, SaysTimesShortly) {
  EXPECT_EQ(SecondsText(123.4), "123 s");
  EXPECT_EQ(SecondsText(1.234), "1.23 s");
  EXPECT_EQ(SecondsText(0.0456), "45.6 ms");
  EXPECT_EQ(SecondsText(7.8e-6), "7.8 us");
  EXPECT_EQ(DecimalBytes(38'500'000'000), "38.5 GB");
  EXPECT_EQ(DecimalBytes(999), "999 B");
  EXPECT_EQ(DecimalBytes(999'950), "1.0 MB");
}

}  // namespace
}  // namespace sherd
