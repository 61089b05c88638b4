// The nearest children of rows at many nodes, by canonical scores: one level of the paths of rows
// from the root to a leaf. Ties go to the lowest child, as in a fit, so rows of the fit end in the
// leaf that they had there. Nodes run in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/numerics/frame.hpp"

namespace exactmeans {

// The centres of all nodes, in the order of the nodes.
template <class R>
struct NodeCentres {
    Size d;
    const R* values = nullptr;                             // nodes x d
    const std::vector<SparseVector<R>>* sparse = nullptr;  // or this, for CSR rows
};

// Rows at a node, and the node's children: nodes [first, first + k).
template <class R>
struct RouteTask {
    const Size* rows;
    Size n, first, k;
    Frame<R> frame;
    const double* price;  // of each child, added to its cost; null: none
    Size m;               // children to find for each row, at most k
    std::int32_t* child;  // n x m: nearest first, counted from `first`
    double* distance;     // n x m, or null: distances, or 1 - cos, from the scores
};

template <class R>
void route_rows(const AnyRows& rows, const NodeCentres<R>& centres,
                const std::vector<RouteTask<R>>& tasks, const Threads& threads);

}  // namespace exactmeans
