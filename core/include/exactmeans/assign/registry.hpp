// The list of all algorithms, from which Python takes the names for `algorithm=`, the memory model
// and the tests.
#pragma once

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "exactmeans/assign/elkan.hpp"
#include "exactmeans/assign/hamerly.hpp"
#include "exactmeans/assign/kdtree.hpp"
#include "exactmeans/assign/lloyd.hpp"
#include "exactmeans/assign/pca.hpp"
#include "exactmeans/assign/sparse/moving.hpp"
#include "exactmeans/assign/sparse/products.hpp"
#include "exactmeans/assign/yinyang.hpp"

namespace exactmeans {

// core/src/assign/ compiles the algorithms, one file each.
extern template class AlgorithmAssigner<Lloyd<float>>;
extern template class AlgorithmAssigner<Lloyd<double>>;
extern template class AlgorithmAssigner<Elkan<float>>;
extern template class AlgorithmAssigner<Elkan<double>>;
extern template class AlgorithmAssigner<Hamerly<float>>;
extern template class AlgorithmAssigner<Hamerly<double>>;
extern template class AlgorithmAssigner<Yinyang<float>>;
extern template class AlgorithmAssigner<Yinyang<double>>;
extern template class AlgorithmAssigner<Kdtree<float>>;
extern template class AlgorithmAssigner<Kdtree<double>>;
extern template class AlgorithmAssigner<Products<float>>;
extern template class AlgorithmAssigner<Products<double>>;
extern template class AlgorithmAssigner<Pca<float>>;
extern template class AlgorithmAssigner<Pca<double>>;
extern template class AlgorithmAssigner<Moving<float>>;
extern template class AlgorithmAssigner<Moving<double>>;

template <class R>
struct Registered {
    Traits traits;
    Size (*bytes_per_row)(Size k, Size d, bool dense);
    std::unique_ptr<Assigner<R>> (*make)(Size n, Size k, const RowState<R>& state);
};

template <class A>
constexpr Registered<typename A::Real> registered() {
    using R = typename A::Real;
    return {A::traits, &A::bytes_per_row,
            [](Size n, Size k, const RowState<R>& state) -> std::unique_ptr<Assigner<R>> {
                return std::make_unique<AlgorithmAssigner<A>>(n, k, state);
            }};
}

template <class R>
inline constexpr std::array registry{
    registered<Lloyd<R>>(),   registered<Elkan<R>>(),  registered<Hamerly<R>>(),
    registered<Yinyang<R>>(), registered<Kdtree<R>>(), registered<Products<R>>(),
    registered<Pca<R>>(),     registered<Moving<R>>(),
};

template <class R>
const Registered<R>& find_algorithm(std::string_view name) {
    for (const Registered<R>& entry : registry<R>)
        if (name == entry.traits.name) return entry;
    throw std::invalid_argument("unknown algorithm " + std::string(name));
}

// Pass the state of a previous assigner of the same rows to avoid computing it again.
template <class R>
std::unique_ptr<Assigner<R>> make_assigner(std::string_view name, Size n, Size k,
                                           const RowState<R>& state = {}) {
    return find_algorithm<R>(name).make(n, k, state);
}

}  // namespace exactmeans
