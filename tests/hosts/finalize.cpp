// MPICH 4.0 over UCX may hang in MPI_Finalize when its processes are on several hosts: one that has
// closed its connections waits in a barrier of the launcher's, and there does not answer those that
// are still closing theirs (pmodels/mpich#6596). Half of the jobs that exchange one message over
// TCP end like that. Loaded before UCX, this closes nothing, and the end of the process does; it
// gives what has been sent a moment to leave.
#include <dlfcn.h>

#include <chrono>

extern "C" int ucp_worker_create(void* context, const void* parameters, void** made);
extern "C" void* ucp_disconnect_nb(void* endpoint);

namespace {

void* worker = nullptr;  // MPICH's only one

template <class F>
F* of_ucx(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int ucp_worker_create(void* context, const void* parameters, void** made) {
  const int status =
      of_ucx<int(void*, const void*, void**)>("ucp_worker_create")(context, parameters, made);
  worker = *made;
  return status;
}

extern "C" void* ucp_disconnect_nb(void*) {
  using clock = std::chrono::steady_clock;
  static const auto until = clock::now() + std::chrono::milliseconds(50);  // over all endpoints
  const auto progress = of_ucx<unsigned(void*)>("ucp_worker_progress");
  while (clock::now() < until) progress(worker);
  return nullptr;  // UCX's word for: done
}
