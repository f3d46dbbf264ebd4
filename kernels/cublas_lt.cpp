#include "kernels/cublas_lt.hpp"

#include <map>
#include <mutex>

#include <cublasLt.h>

#include "kernels/cuda_calls.hpp"
#include "kernels/library_products.hpp"
#include "kernels/open_library.hpp"

namespace pipewright::kernels {

const OpenLibrary& cublas_lt_library() {
  static const OpenLibrary library = [] {
    OpenLibrary out = opened("cuBLASLt", kCublasLtUse, "libcublasLt.so.13");
    if (out.handle == nullptr) return out;
    const std::size_t version = symbol_of<decltype(&cublasLtGetVersion)>(out, "cublasLtGetVersion")();  // 130100
    out.told.version = dotted(version / 10000, version / 100 % 100, version % 100);
    return out;
  }();
  return library;
}

namespace {

// The tiles of cuBLASLt's algorithms by their number (cublasLtMatmulTile_t): rows x columns of its result, which lies
// column by column, so columns x rows of one whose rows lie one after another. Those whose sides are multiples of 32 up
// to 512: where another was taken, a fit tries its own (calibrate/fit.cpp).

struct LibraryTile {
  int rows = 0, columns = 0;  // the library's; 0: a number that this list does not know
};

LibraryTile library_tile(int number) {
  switch (number) {
#define PIPEWRIGHT_TILE(rows, columns) \
  case CUBLASLT_MATMUL_TILE_##rows##x##columns: return {rows, columns};
    // clang-format off
    PIPEWRIGHT_TILE(32, 32) PIPEWRIGHT_TILE(32, 64) PIPEWRIGHT_TILE(32, 128) PIPEWRIGHT_TILE(32, 192)
    PIPEWRIGHT_TILE(32, 256) PIPEWRIGHT_TILE(32, 320) PIPEWRIGHT_TILE(32, 384) PIPEWRIGHT_TILE(32, 448)
    PIPEWRIGHT_TILE(32, 512) PIPEWRIGHT_TILE(64, 32) PIPEWRIGHT_TILE(64, 64) PIPEWRIGHT_TILE(64, 96)
    PIPEWRIGHT_TILE(64, 128) PIPEWRIGHT_TILE(64, 160) PIPEWRIGHT_TILE(64, 192) PIPEWRIGHT_TILE(64, 224)
    PIPEWRIGHT_TILE(64, 256) PIPEWRIGHT_TILE(64, 288) PIPEWRIGHT_TILE(64, 320) PIPEWRIGHT_TILE(64, 352)
    PIPEWRIGHT_TILE(64, 384) PIPEWRIGHT_TILE(64, 416) PIPEWRIGHT_TILE(64, 448) PIPEWRIGHT_TILE(64, 480)
    PIPEWRIGHT_TILE(64, 512) PIPEWRIGHT_TILE(96, 64) PIPEWRIGHT_TILE(96, 128) PIPEWRIGHT_TILE(96, 192)
    PIPEWRIGHT_TILE(96, 256) PIPEWRIGHT_TILE(96, 320) PIPEWRIGHT_TILE(96, 384) PIPEWRIGHT_TILE(96, 448)
    PIPEWRIGHT_TILE(96, 512) PIPEWRIGHT_TILE(128, 32) PIPEWRIGHT_TILE(128, 64) PIPEWRIGHT_TILE(128, 96)
    PIPEWRIGHT_TILE(128, 128) PIPEWRIGHT_TILE(128, 160) PIPEWRIGHT_TILE(128, 192) PIPEWRIGHT_TILE(128, 224)
    PIPEWRIGHT_TILE(128, 256) PIPEWRIGHT_TILE(128, 288) PIPEWRIGHT_TILE(128, 320) PIPEWRIGHT_TILE(128, 352)
    PIPEWRIGHT_TILE(128, 384) PIPEWRIGHT_TILE(128, 416) PIPEWRIGHT_TILE(128, 448) PIPEWRIGHT_TILE(128, 480)
    PIPEWRIGHT_TILE(128, 512) PIPEWRIGHT_TILE(160, 64) PIPEWRIGHT_TILE(160, 128) PIPEWRIGHT_TILE(160, 192)
    PIPEWRIGHT_TILE(160, 256) PIPEWRIGHT_TILE(192, 32) PIPEWRIGHT_TILE(192, 64) PIPEWRIGHT_TILE(192, 96)
    PIPEWRIGHT_TILE(192, 128) PIPEWRIGHT_TILE(192, 160) PIPEWRIGHT_TILE(192, 192) PIPEWRIGHT_TILE(192, 224)
    PIPEWRIGHT_TILE(192, 256) PIPEWRIGHT_TILE(192, 288) PIPEWRIGHT_TILE(192, 320) PIPEWRIGHT_TILE(224, 64)
    PIPEWRIGHT_TILE(224, 128) PIPEWRIGHT_TILE(224, 192) PIPEWRIGHT_TILE(256, 32) PIPEWRIGHT_TILE(256, 64)
    PIPEWRIGHT_TILE(256, 96) PIPEWRIGHT_TILE(256, 128) PIPEWRIGHT_TILE(256, 160) PIPEWRIGHT_TILE(256, 192)
    PIPEWRIGHT_TILE(256, 224) PIPEWRIGHT_TILE(256, 256) PIPEWRIGHT_TILE(256, 512) PIPEWRIGHT_TILE(288, 64)
    PIPEWRIGHT_TILE(288, 128) PIPEWRIGHT_TILE(320, 32) PIPEWRIGHT_TILE(320, 64) PIPEWRIGHT_TILE(320, 96)
    PIPEWRIGHT_TILE(320, 128) PIPEWRIGHT_TILE(320, 160) PIPEWRIGHT_TILE(320, 192) PIPEWRIGHT_TILE(352, 64)
    PIPEWRIGHT_TILE(352, 128) PIPEWRIGHT_TILE(384, 32) PIPEWRIGHT_TILE(384, 64) PIPEWRIGHT_TILE(384, 96)
    PIPEWRIGHT_TILE(384, 128) PIPEWRIGHT_TILE(384, 160) PIPEWRIGHT_TILE(416, 64) PIPEWRIGHT_TILE(448, 32)
    PIPEWRIGHT_TILE(448, 64) PIPEWRIGHT_TILE(448, 96) PIPEWRIGHT_TILE(448, 128) PIPEWRIGHT_TILE(480, 64)
    PIPEWRIGHT_TILE(512, 32) PIPEWRIGHT_TILE(512, 64) PIPEWRIGHT_TILE(512, 96) PIPEWRIGHT_TILE(512, 128)
    PIPEWRIGHT_TILE(512, 512)
    default: return {};
  }
  // clang-format on
#undef PIPEWRIGHT_TILE
}

#define PIPEWRIGHT_FUNCTION(name) decltype(&::name) name = symbol_of<decltype(&::name)>(cublas_lt_library(), #name)
struct Functions {
  PIPEWRIGHT_FUNCTION(cublasLtGetStatusString);
  PIPEWRIGHT_FUNCTION(cublasLtCreate);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulDescCreate);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulDescDestroy);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulDescSetAttribute);
  PIPEWRIGHT_FUNCTION(cublasLtMatrixLayoutCreate);
  PIPEWRIGHT_FUNCTION(cublasLtMatrixLayoutDestroy);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulPreferenceCreate);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulPreferenceDestroy);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  PIPEWRIGHT_FUNCTION(cublasLtMatmulAlgoConfigGetAttribute);
  PIPEWRIGHT_FUNCTION(cublasLtMatmul);
};
#undef PIPEWRIGHT_FUNCTION

const Functions& functions() {
  static const Functions all;
  return all;
}

void check(cublasStatus_t status, const std::string& call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw GpuError(call + ": " + functions().cublasLtGetStatusString(status));
}

cudaDataType_t type_of(GpuPrecision precision) {
  switch (precision) {
    case GpuPrecision::Fp32:
    case GpuPrecision::Tf32: return CUDA_R_32F;
    case GpuPrecision::Fp16: return CUDA_R_16F;
    case GpuPrecision::Bf16: return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

// One per device, for all threads: a handle has no settings, and a calibration multiplies thousands of shapes. They
// stay until the process ends, by when the driver may be gone.
cublasLtHandle_t handle_of_current_device() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  pipewright::check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) check(functions().cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

std::string text(const MatmulShape& shape) {
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " + std::to_string(shape.k);
}

// The library counts by columns: what is {rows, columns} here is columns x rows there.
void make_layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  check(functions().cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                               static_cast<std::uint64_t>(rows), columns),
        "cublasLtMatrixLayoutCreate");
}

}  // namespace

struct Matmul::Parts {
  cublasLtHandle_t handle = nullptr;  // of the device
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t chosen{};

  Parts() = default;
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    const Functions& call = functions();
    for (const cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout != nullptr) static_cast<void>(call.cublasLtMatrixLayoutDestroy(layout));
    if (product != nullptr) static_cast<void>(call.cublasLtMatmulDescDestroy(product));
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(functions().cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  void choose(const MatmulShape& shape, std::uint64_t workspace) {
    const Functions& call = functions();
    cublasLtMatmulPreference_t preference = nullptr;
    check(call.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    int found = 0;
    cublasStatus_t status = call.cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = call.cublasLtMatmulAlgoGetHeuristic(handle, product, b, a, c, c, preference, 1, &chosen, &found);
    static_cast<void>(call.cublasLtMatmulPreferenceDestroy(preference));
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic of " + text(shape));
    if (found == 0) throw NoAlgorithm("cuBLASLt has no algorithm for a product of " + text(shape));
  }
};

// c = op(a) op(b) by rows is c^T = op(b)^T op(a)^T by columns: the library's first operand is b.
Matmul::Matmul(GpuPrecision precision, const MatmulShape& shape, int sms, Bytes workspace, MatmulResult result)
    : parts_(std::make_unique<Parts>()) {
  const Functions& call = functions();
  parts_->handle = handle_of_current_device();
  check(call.cublasLtMatmulDescCreate(
            &parts_->product, precision == GpuPrecision::Tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
            CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  parts_->set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  parts_->set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  parts_->set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(sms));
  const cudaDataType_t type = type_of(precision);
  const bool at = shape.a_transposed, bt = shape.b_transposed;
  make_layout(parts_->a, type, at ? shape.k : shape.m, at ? shape.m : shape.k);
  make_layout(parts_->b, type, bt ? shape.n : shape.k, bt ? shape.k : shape.n);
  make_layout(parts_->c, result == MatmulResult::Fp32 ? CUDA_R_32F : type, shape.m, shape.n);
  parts_->choose(shape, static_cast<std::uint64_t>(workspace.value));
}

Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;

void Matmul::launch(GpuStream stream, const void* a, const void* b, void* c, bool add, void* workspace) const {
  const float one = 1, kept = add ? 1 : 0;
  check(functions().cublasLtMatmul(parts_->handle, parts_->product, &one, b, parts_->b, a, parts_->a, &kept, c,
                                   parts_->c, c, parts_->c, &parts_->chosen.algo, workspace,
                                   parts_->chosen.workspaceSize, stream_of(stream)),
        "cublasLtMatmul");
}

Bytes Matmul::workspace() const {
  return {static_cast<std::int64_t>(parts_->chosen.workspaceSize)};
}

bool has_library_products() {
  return cublas_lt_library().handle != nullptr;
}

MatmulAlgorithm Matmul::algorithm() const {
  const auto told = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    std::int32_t value = 0;
    std::size_t written = 0;
    const cublasStatus_t status = functions().cublasLtMatmulAlgoConfigGetAttribute(&parts_->chosen.algo, attribute,
                                                                                   &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : 0;
  };
  const LibraryTile tile = library_tile(told(CUBLASLT_ALGO_CONFIG_TILE_ID));
  return {static_cast<double>(parts_->chosen.wavesCount), tile.columns, tile.rows,
          told(CUBLASLT_ALGO_CONFIG_SPLITK_NUM)};
}

}  // namespace pipewright::kernels
