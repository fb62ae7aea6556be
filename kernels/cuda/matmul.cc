#include "kernels/cuda/matmul.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

cublasLtEpilogue_t EpilogueOf(const Product& p) {
  switch (p.epilogue) {
    case Epilogue::kNone:
      break;
    case Epilogue::kGelu:
      return p.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return p.bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
}

// "cublasLtMatmulDescCreate failed: CUBLAS_STATUS_ALLOC_FAILED".
cublasStatus_t Failed(cublasStatus_t status, const char* call, std::string* why) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    *why = absl::StrCat(call, " failed: ", cublasLtGetStatusName(status));
  }
  return status;
}

#define SHERD_RETURN_IF_FAILED(expression, call, why)                  \
  do {                                                                 \
    if (const cublasStatus_t status = Failed((expression), call, why); \
        status != CUBLAS_STATUS_SUCCESS)                               \
      return status;                                                   \
  } while (false)

}  // namespace

// The library's description of a product. It is column-major there, so that what is computed is
// dᵀ (n, m) = op(b)ᵀ (n, k) · op(a)ᵀ (k, m): its first operand is b, and what is row-major is its
// transpose.
class Matmul::Problem {
 public:
  Problem() = default;
  ~Problem() {
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
  Problem(const Problem&) = delete;

  cublasStatus_t Describe(const Product& p, std::string* why) {
    SHERD_RETURN_IF_FAILED(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                           "cublasLtMatmulDescCreate", why);
    SHERD_RETURN_IF_FAILED(
        Set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N),
        "setting the first operand's transposition", why);
    SHERD_RETURN_IF_FAILED(
        Set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N),
        "setting the second operand's transposition", why);
    SHERD_RETURN_IF_FAILED(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(p)),
                           "setting the epilogue", why);
    if (p.epilogue != Epilogue::kNone) {
      SHERD_RETURN_IF_FAILED(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.pre),
                             "setting the epilogue's matrix", why);
      SHERD_RETURN_IF_FAILED(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n),
                             "setting the row of the epilogue's matrix", why);
    }
    if (p.bias != nullptr) {
      SHERD_RETURN_IF_FAILED(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias), "setting the bias",
                             why);
      SHERD_RETURN_IF_FAILED(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F),
                             "setting the bias's type", why);
    }
    SHERD_RETURN_IF_FAILED(Lay(&first, p.operands, p.k, p.n, p.b_transposed),
                           "cublasLtMatrixLayoutCreate", why);
    SHERD_RETURN_IF_FAILED(Lay(&second, p.operands, p.m, p.k, p.a_transposed),
                           "cublasLtMatrixLayoutCreate", why);
    return Failed(Lay(&result, p.result, p.m, p.n, false), "cublasLtMatrixLayoutCreate", why);
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;

 private:
  template <typename T>
  cublasStatus_t Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value);
  }
  // Of a row-major matrix that is (rows, columns) once it is transposed, if it is to be.
  static cublasStatus_t Lay(cublasLtMatrixLayout_t* layout, DType dtype, int64_t rows,
                            int64_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    return cublasLtMatrixLayoutCreate(layout, TypeOf(dtype), static_cast<uint64_t>(columns),
                                      static_cast<uint64_t>(rows), columns);
  }
};

Matmul::~Matmul() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

cublasStatus_t Matmul::Open(std::string* why) {
  return Failed(cublasLtCreate(&handle_), "cublasLtCreate", why);
}

cublasStatus_t Matmul::Choose(const Product& product, cublasLtMatmulAlgo_t* algorithm,
                              std::string* why) {
  const ProductKey key = KeyOf(product);
  absl::MutexLock lock(&mutex_);
  auto known = chosen_.find(key);
  if (known == chosen_.end()) {
    std::optional<cublasLtMatmulAlgo_t> best;
    if (const cublasStatus_t status = Ask(product, &best, why); status != CUBLAS_STATUS_SUCCESS) {
      return status;
    }
    known = chosen_.emplace(key, best).first;
  }
  if (!known->second) {
    return Failed(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", why);
  }
  *algorithm = *known->second;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Matmul::Ask(const Product& product, std::optional<cublasLtMatmulAlgo_t>* algorithm,
                           std::string* why) {
  // Pointers of an epilogue tell their alignment by what they are; nothing is read here.
  auto* const aligned = reinterpret_cast<float*>(kProductAlignment);
  Product like = product;
  if (like.bias != nullptr) like.bias = aligned;
  if (like.epilogue != Epilogue::kNone) like.pre = aligned;
  Problem problem;
  if (const cublasStatus_t described = problem.Describe(like, why);
      described != CUBLAS_STATUS_SUCCESS) {
    return described;
  }
  cublasLtMatmulPreference_t preference = nullptr;
  SHERD_RETURN_IF_FAILED(cublasLtMatmulPreferenceCreate(&preference),
                         "cublasLtMatmulPreferenceCreate", why);
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    if (status != CUBLAS_STATUS_SUCCESS) return;
    status =
        Failed(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute", why);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(product.workspace_bytes));
  // Never in the result's type, which would round more than once.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, static_cast<uint32_t>(kProductAlignment));
  }
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  if (status == CUBLAS_STATUS_SUCCESS) {
    const cublasStatus_t answer = cublasLtMatmulAlgoGetHeuristic(
        handle_, problem.operation, problem.first, problem.second, problem.result, problem.result,
        preference, 1, &best, &found);
    // The one answer or the other where there is no such epilogue.
    const bool none =
        answer == CUBLAS_STATUS_NOT_SUPPORTED ||
        (answer == CUBLAS_STATUS_INVALID_VALUE && product.epilogue != Epilogue::kNone);
    if (!none) {
      status = Failed(answer, "cublasLtMatmulAlgoGetHeuristic", why);
    }
  }
  cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_SUCCESS && found > 0) *algorithm = best.algo;
  return status;
}

bool Matmul::Computes(const Product& product) {
  cublasLtMatmulAlgo_t algorithm;
  std::string why;
  return Choose(product, &algorithm, &why) != CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t Matmul::Multiply(const Product& product, cudaStream_t stream, std::string* why) {
  Problem problem;
  cublasLtMatmulAlgo_t algorithm;
  cublasStatus_t status = problem.Describe(product, why);
  if (status == CUBLAS_STATUS_SUCCESS) status = Choose(product, &algorithm, why);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float one = 1;
  const float before = product.accumulate ? 1 : 0;
  return Failed(cublasLtMatmul(handle_, problem.operation, &one, product.b, problem.first,
                               product.a, problem.second, &before, product.d, problem.result,
                               product.d, problem.result, &algorithm, product.workspace,
                               static_cast<size_t>(product.workspace_bytes), stream),
                "cublasLtMatmul", why);
}

}  // namespace sherd
