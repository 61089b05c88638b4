// Shared parts of the bindings. Only files in this folder depend on Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"

namespace nb = nanobind;

namespace exactmeans {

template <class T, int N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Labels = Array<std::int32_t, 1>;

// Releases the GIL while it exists. nanobind's guards are not enough: once the interpreter shuts
// down, Python before 3.14 ends a thread that requests the GIL by unwinding its stack, and a guard
// whose destructor must not throw turns that into a call of std::terminate. A daemon thread in the
// middle of a fit would abort the process.
class ReleasedGil {
public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ReleasedGil(const ReleasedGil&) = delete;
    ReleasedGil& operator=(const ReleasedGil&) = delete;
    ~ReleasedGil() { acquire(); }

    // Calls fn with the GIL.
    template <class Fn>
    auto with_gil(Fn&& fn) {
        acquire();
        struct Release {
            PyThreadState*& state;
            ~Release() { state = PyEval_SaveThread(); }
        } release{state_};
        return fn();
    }

private:
    void acquire() noexcept {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {  // the thread is being ended: wait for the end of the process instead
            for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }

    PyThreadState* state_;
};

// Runs fn(threads) without the GIL, with the floating-point mode of docs/numerics.md, polling for
// Ctrl-C.
template <class Fn>
auto unlocked(int n_jobs, Fn&& fn) {
    ReleasedGil released;
    auto poll = [&released] {
        return released.with_gil([] {
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            return false;
        });
    };
    const FloatEnvironment arithmetic;
    return fn(Threads{n_jobs, poll});
}

// A block of rows, and the Python arrays that own its memory.
struct Block {
    AnyRows rows;
    std::vector<nb::object> owners;
    Metric metric = Metric::euclidean;
};

// Calls fn(x, threads) without the GIL for the rows of a block.
template <class Fn>
auto on_rows(const Block& block, int n_jobs, Fn fn) {
    return unlocked(n_jobs, [&](const Threads& threads) {
        return std::visit([&](const auto& x) { return fn(x, threads); }, block.rows);
    });
}

// Centres in the compute dtype, with their layouts and buffers. The variant holds pointers, because
// the core keeps references to the centres.
struct AnyCentres {
    std::variant<std::unique_ptr<SharedCentres<float>>, std::unique_ptr<SharedCentres<double>>> of;

    template <class Fn>
    auto visit(Fn&& fn) {
        return std::visit([&](auto& pointer) { return fn(pointer->centres); }, of);
    }
    template <class Fn>
    auto visit_shared(Fn&& fn) {
        return std::visit([&](auto& pointer) { return fn(*pointer); }, of);
    }
    // Null if the centres have another dtype.
    template <class R>
    SharedCentres<R>* shared() {
        auto* own = std::get_if<std::unique_ptr<SharedCentres<R>>>(&of);
        return own ? own->get() : nullptr;
    }
};

// Centres as sparse vectors.
struct SparseCentres {
    std::variant<std::vector<SparseVector<float>>, std::vector<SparseVector<double>>> of;
    Size d;

    Size k() const {
        return std::visit([](const auto& centres) { return Size(centres.size()); }, of);
    }
};

template <class T>
nb::object to_numpy(const std::vector<T>& values, std::vector<std::size_t> shape) {
    auto copy = std::make_unique<std::vector<T>>(values);
    T* data = copy->data();
    nb::capsule owner(copy.release(),
                      [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner));
}

// Sparse vectors as the three arrays of a CSR matrix: values, indices and offsets.
template <class R>
class CsrArrays {
public:
    CsrArrays() = default;
    // Room for all that will be added: growing arrays would take up to three times the memory.
    CsrArrays(std::size_t rows, std::size_t values) {
        values_.reserve(values);
        indices_.reserve(values);
        offsets_.reserve(rows + 1);
    }
    void add(const SparseVector<R>& row) {
        values_.insert(values_.end(), row.value.begin(), row.value.end());
        indices_.insert(indices_.end(), row.feature.begin(), row.feature.end());
        offsets_.push_back(std::int64_t(values_.size()));
    }
    nb::object numpy() const {
        return nb::make_tuple(to_numpy(values_, {values_.size()}),
                              to_numpy(indices_, {indices_.size()}),
                              to_numpy(offsets_, {offsets_.size()}));
    }

private:
    std::vector<R> values_;
    std::vector<std::int32_t> indices_;
    std::vector<std::int64_t> offsets_{0};
};

inline void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

// Throws unless all labels are in [0, k). Labels are checked in every iteration, so the loop is
// branch-free: a label out of range sets the sign bit.
inline void require_labels(const std::int32_t* labels, Size n, Size k) {
    const auto high = std::uint32_t(std::min(k, largest_k) - 1);
    std::uint32_t signs = 0;
    for (Size i = 0; i < n; ++i) {
        const auto label = std::uint32_t(labels[i]);
        signs |= label | (high - label);
    }
    require(!(signs >> 31), "a label is out of range");
}

void bind_cost_model(nb::module_& m);
void bind_rows(nb::module_& m);
void bind_distances(nb::class_<Block>& rows);
void bind_update(nb::module_& m);
void bind_assign(nb::module_& m);
void bind_seed(nb::module_& m);
void bind_tree(nb::module_& m);
void bind_limits(nb::module_& m);

}  // namespace exactmeans
