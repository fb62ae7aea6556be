// One collective a repetition, among processes of this machine.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "bench/repetitions.h"
#include "bench/world.h"
#include "common/check.h"
#include "worker/comm/tree_accumulator.h"

namespace sherd {
namespace {

struct Options {
  std::string collective = "all_reduce";
  bool tcp = false;
  int64_t bytes = 64 << 20;
  int rank = 0;
  int world = 2;
};

void ServeCollectives(const Options& options, Repetitions& repetitions) {
  World world(repetitions, options.rank, options.world, options.bytes,
              options.tcp ? Transport::kTcp : Transport::kShm);
  Communicator& comm = world.comm();
  const int64_t elements = options.bytes / SizeOf(DType::kF32);
  float* data = reinterpret_cast<float*>(comm.arena());  // (elements)
  const int64_t shard_elements = elements / options.world;
  MemoryMeter meter;
  TreeAccumulator sum(meter, Pool::kGrads, shard_elements, DType::kF32, options.world,
                      options.world);
  Buffer gathered(meter, Pool::kGathered, options.bytes);

  const auto enqueue = [&] {
    if (options.collective == "all_reduce") {
      return comm.AllReduce(data, elements, DType::kF32, options.world);
    }
    if (options.collective == "reduce_scatter") {
      sum.Reset();
      return comm.ReduceScatter(data, options.world, &sum);
    }
    return comm.AllGather(data, gathered.data(), options.bytes / options.world);
  };
  const auto collective = [&]() -> Figures {
    // Members hear "run" one after another; what they wait for that is not part of it.
    SHERD_CHECK(comm.Wait(comm.Barrier()).ok());
    return Timed([&] { SHERD_CHECK(comm.Wait(enqueue()).ok()); });
  };
  for (int64_t i = 0; i < elements; ++i) data[i] = 0.0f;
  repetitions.Serve({{"bytes", static_cast<double>(options.bytes)}}, collective);
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) {
  sherd::Repetitions repetitions;
  sherd::Options options;
  CLI::App app("Collectives, one a repetition; driven by compare.py");
  app.add_option("--collective", options.collective)
      ->check(CLI::IsMember({"all_reduce", "reduce_scatter", "all_gather"}));
  app.add_flag("--tcp", options.tcp, "over loopback instead of shared memory");
  app.add_option("--bytes", options.bytes, "of the whole buffer; a multiple of 4 · world");
  app.add_option("--rank", options.rank);
  app.add_option("--world", options.world);
  CLI11_PARSE(app, argc, argv);
  sherd::ServeCollectives(options, repetitions);
  return 0;
}
