#include "plan/cost_profiles.h"

#include <array>

namespace sherd {
namespace {

struct Profile {
  absl::string_view name;
  CostModel cost;
};

constexpr std::array<Profile, 2> kProfiles = {{
    // One core of a server with AVX-512 a rank, all ranks on one host, so that a byte sent is a
    // byte copied in its memory; AdamW moves 28 bytes a parameter and a fold 6, at the memory rate
    // of one core.
    {"cpu",
     {.flops = 60e9,
      .bandwidth = 4e9,
      .tensor_bandwidth = 4e9,
      .seconds_per_message = 20e-6,
      .optimizer_seconds = 2.5e-9,
      .fold_seconds = 0.6e-9,
      .shares_cores = true}},
    // One NVIDIA H100 SXM a rank: 40 % of its 989e12 dense bf16 FLOP/s, a 400 Gbit/s link a GPU
    // and NVLink within a host, memory at 80 % of 3.35 TB/s.
    {"h100",
     {.flops = 400e12,
      .bandwidth = 50e9,
      .tensor_bandwidth = 450e9,
      .seconds_per_message = 10e-6,
      .optimizer_seconds = 1.05e-11,
      .fold_seconds = 2.3e-12,
      .shares_cores = false}},
}};

}  // namespace

std::optional<CostModel> FindCostProfile(absl::string_view name) {
  for (const Profile& profile : kProfiles) {
    if (profile.name == name) return profile.cost;
  }
  return std::nullopt;
}

std::vector<absl::string_view> CostProfileNames() {
  std::vector<absl::string_view> names;
  for (const Profile& profile : kProfiles) names.push_back(profile.name);
  return names;
}

}  // namespace sherd
