// Kernels at the sizes of a training step, and what they are held against. One repetition is one
// run of the kernel.
#include <map>
#include <random>

#include "CLI/CLI.hpp"
#include "bench/kernel_cases.h"

namespace sherd {

std::vector<float> NormalValues(int64_t elements) {
  std::minstd_rand generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& value : values) value = 0.1f * normal(generator);
  return values;
}

}  // namespace sherd

int main(int argc, char** argv) {
  sherd::Repetitions repetitions;
  sherd::KernelOptions options;
  const std::map<std::string, sherd::KernelCase (*)(const sherd::KernelOptions&)> kernels{
      {"linear", sherd::LinearCase},
      {"sgemm_limit", sherd::SgemmLimitCase},
      {"attention", sherd::AttentionCase},
      {"adamw", sherd::AdamWCase},
      {"adamw_memory_limit", sherd::AdamWMemoryLimitCase}};
  CLI::App app("Kernels, one run a repetition; driven by compare.py");
  app.add_option("kernel", options.kernel)->required()->check(CLI::IsMember(kernels));
  app.add_option("--layers", options.layers);
  app.add_option("--hidden", options.hidden);
  app.add_option("--vocab", options.vocab);
  app.add_option("--batch", options.batch);
  app.add_option("--tokens", options.tokens);
  app.add_option("--elements", options.elements);
  app.add_flag("--half", options.half, "parameters and gradients in bf16");
  app.add_option("--threads", options.threads);
  CLI11_PARSE(app, argc, argv);
  const sherd::KernelCase kernel = kernels.at(options.kernel)(options);
  repetitions.Serve(kernel.about, kernel.repetition);
  return 0;
}
