// Vectors whose memory a backend hands out, for tensors that only its operations touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/backend.h"

namespace k3 {

// Elements begin as zeros where the backend works on the host, else as anything. The backend must
// outlive its memory. Without one it is the host's.
template <class T>
class BackendAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  BackendAllocator() = default;
  explicit BackendAllocator(Backend& backend) : backend_(&backend) {}
  template <class U>
  BackendAllocator(const BackendAllocator<U>& other) : backend_(other.backend()) {}  // NOLINT

  Backend* backend() const { return backend_; }
  T* allocate(size_t count) {
    const auto bytes = static_cast<int64_t>(count * sizeof(T));
    return static_cast<T*>(backend_ != nullptr ? backend_->allocate(bytes)
                                               : ::operator new(static_cast<size_t>(bytes)));
  }
  void deallocate(T* memory, size_t) {
    if (backend_ != nullptr) {
      backend_->release(memory);
    } else {
      ::operator delete(memory);
    }
  }
  template <class U>
  void construct(U* at) {
    if (backend_ == nullptr || backend_->works_on_host()) ::new (static_cast<void*>(at)) U();
  }
  template <class U>
  void destroy(U*) {}
  friend bool operator==(const BackendAllocator& a, const BackendAllocator& b) {
    return a.backend_ == b.backend_;
  }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  Backend* backend_ = nullptr;
};

// Grown only while empty: a device's elements are nothing that a vector could move.
template <class T>
using BackendVector = std::vector<T, BackendAllocator<T>>;
using Floats = BackendVector<float>;

// `count` elements.
template <class T>
BackendVector<T> make_vector(Backend& backend, int64_t count) {
  return BackendVector<T>(static_cast<size_t>(count), BackendAllocator<T>(backend));
}

}  // namespace k3
