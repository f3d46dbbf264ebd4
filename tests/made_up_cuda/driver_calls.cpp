// The driver's functions for SM groups (green contexts), which the program finds by their names.
#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "tests/made_up_cuda/made_up_cuda.hpp"

using namespace pipewright::tests::made_up_cuda;

namespace {

constexpr unsigned kLeast = 8, kStep = 8;  // SMs of a group, from architecture 9.0 on

struct Context {
  std::vector<Sms> sms;
};

// Which SMs a resource is of stands in what the driver keeps there for itself.
int first_sm(const CUdevResource& resource) {
  int first = 0;
  std::memcpy(&first, resource._internal_padding, sizeof first);
  return first;
}
CUdevResource resource_of(int first, unsigned sms) {
  CUdevResource out{};
  out.type = CU_DEV_RESOURCE_TYPE_SM;
  out.sm = {sms, kLeast, kStep};
  std::memcpy(out._internal_padding, &first, sizeof first);
  return out;
}

CUresult device_resource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return driver_call("cuDeviceGetDevResource", [&](Lock&) {
    if (type != CU_DEV_RESOURCE_TYPE_SM || device < 0 || device >= cuda().machine.gpus) return CUDA_ERROR_INVALID_VALUE;
    return *resource = resource_of(0, static_cast<unsigned>(cuda().machine.sms)), CUDA_SUCCESS;
  });
}

CUresult split(CUdevResource* groups, unsigned* count, const CUdevResource* all, CUdevResource* left_over, unsigned,
               unsigned least) {
  return driver_call("cuDevSmResourceSplitByCount", [&](Lock&) {
    const unsigned each = std::max(kLeast, (least + kStep - 1) / kStep * kStep);
    const auto most = static_cast<unsigned>(cuda().machine.groups);
    if (each > all->sm.smCount || most == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *count = std::min({*count, all->sm.smCount / each, most});
    for (unsigned i = 0; i < *count; ++i)
      groups[i] = resource_of(first_sm(*all) + static_cast<int>(i * each), each);
    if (left_over != nullptr)
      *left_over = resource_of(first_sm(*all) + static_cast<int>(*count * each), all->sm.smCount - *count * each);
    return CUDA_SUCCESS;
  });
}

// A description is one, used at once; nobody gives it back.
CUresult describe(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  return driver_call("cuDevResourceGenerateDesc", [&](Lock&) {
    static std::vector<std::unique_ptr<Context>> descriptions;
    auto& out = *descriptions.emplace_back(std::make_unique<Context>());
    for (unsigned i = 0; i < count; ++i)
      out.sms.push_back({first_sm(resources[i]), static_cast<int>(resources[i].sm.smCount)});
    *description = reinterpret_cast<CUdevResourceDesc>(&out);
    return CUDA_SUCCESS;
  });
}

CUresult create(CUgreenCtx* handle, CUdevResourceDesc description, CUdevice, unsigned) {
  return driver_call("cuGreenCtxCreate", [&](Lock&) {
    auto* const context = new Context(*reinterpret_cast<const Context*>(description));
    *handle = reinterpret_cast<CUgreenCtx>(context);
    return cuda().ledger.made(Kind::Context, context), CUDA_SUCCESS;
  });
}

CUresult destroy(CUgreenCtx handle) {
  Cuda& all = cuda();
  const Lock lock(all.mutex);
  all.ledger.count("cuGreenCtxDestroy");
  if (!all.ledger.destroyed("cuGreenCtxDestroy", Kind::Context, handle)) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& stream : all.streams.all())
    if (stream->context == handle && all.ledger.lives(Kind::Stream, stream.get()))
      all.ledger.note("cuGreenCtxDestroy before a stream of it");
  delete reinterpret_cast<Context*>(handle);
  return CUDA_SUCCESS;
}

CUresult context_resource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType) {
  return driver_call("cuGreenCtxGetDevResource", [&](Lock&) {
    if (!cuda().ledger.lives(Kind::Context, handle)) return CUDA_ERROR_INVALID_HANDLE;
    const Context& context = *reinterpret_cast<const Context*>(handle);
    unsigned sms = 0;
    for (const Sms& part : context.sms)
      sms += static_cast<unsigned>(part.count);
    return *resource = resource_of(context.sms.front().first, sms), CUDA_SUCCESS;
  });
}

CUresult create_stream(CUstream* handle, CUgreenCtx context, unsigned, int) {
  return driver_call("cuGreenCtxStreamCreate", [&](Lock&) {
    if (!cuda().ledger.lives(Kind::Context, context)) return CUDA_ERROR_INVALID_HANDLE;
    Stream* const stream = cuda().streams.add();
    stream->device = this_thread().device;
    stream->context = context;
    stream->sms = reinterpret_cast<const Context*>(context)->sms;
    *handle = reinterpret_cast<CUstream>(stream);
    return cuda().ledger.made(Kind::Stream, stream), CUDA_SUCCESS;
  });
}

// What stands for the primary contexts of GPUs.
const char primary[kMostGpus] = {};

CUresult context_of(CUstream handle, CUcontext* context) {
  return driver_call("cuStreamGetCtx", [&](Lock&) {
    const Stream* const stream = stream_of("cuStreamGetCtx", handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const void* const own = stream->context != nullptr ? stream->context : &primary[stream->device];
    *context = static_cast<CUcontext>(const_cast<void*>(own));
    return CUDA_SUCCESS;
  });
}

CUresult push(CUcontext context) {
  return driver_call("cuCtxPushCurrent", [&](Lock&) {
    const void* const given = context;
    const bool whole = std::any_of(std::begin(primary), std::end(primary), [&](const char& c) { return &c == given; });
    if (!whole && !cuda().ledger.lives(Kind::Context, given)) return CUDA_ERROR_INVALID_CONTEXT;
    this_thread().pushed.push_back(whole ? nullptr : given);
    return CUDA_SUCCESS;
  });
}

CUresult pop(CUcontext* context) {
  return driver_call("cuCtxPopCurrent", [&](Lock&) {
    std::vector<const void*>& pushed = this_thread().pushed;
    if (pushed.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = static_cast<CUcontext>(const_cast<void*>(pushed.back()));
    return pushed.pop_back(), CUDA_SUCCESS;
  });
}

CUresult create_event(CUevent* handle, unsigned) {
  return driver_call("cuEventCreate",
                     [&](Lock&) { return *handle = reinterpret_cast<CUevent>(new_event()), CUDA_SUCCESS; });
}

CUresult error_string(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY                    ? "out of memory"
          : error == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION ? "invalid resource configuration"
                                                               : "an error that is made up";
  return CUDA_SUCCESS;
}

const std::map<std::string, void*>& functions() {
  static const std::map<std::string, void*> all = {
      {"cuDeviceGetDevResource", reinterpret_cast<void*>(device_resource)},
      {"cuDevSmResourceSplitByCount", reinterpret_cast<void*>(split)},
      {"cuDevResourceGenerateDesc", reinterpret_cast<void*>(describe)},
      {"cuGreenCtxCreate", reinterpret_cast<void*>(create)},
      {"cuGreenCtxDestroy", reinterpret_cast<void*>(destroy)},
      {"cuGreenCtxGetDevResource", reinterpret_cast<void*>(context_resource)},
      {"cuGreenCtxStreamCreate", reinterpret_cast<void*>(create_stream)},
      {"cuStreamGetCtx", reinterpret_cast<void*>(context_of)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(push)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(pop)},
      {"cuEventCreate", reinterpret_cast<void*>(create_event)},
      {"cuGetErrorString", reinterpret_cast<void*>(error_string)},
  };
  return all;
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned version,
                                                        unsigned long long, cudaDriverEntryPointQueryResult* result) {
  return call("cudaGetDriverEntryPointByVersion", [&](Lock&) {
    const auto function = functions().find(name);
    const Machine& machine = cuda().machine;
    const bool there =
        function != functions().end() && machine.without != name && static_cast<int>(version) <= machine.driver;
    *found = there ? function->second : nullptr;
    *result = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}
