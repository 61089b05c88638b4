// Splits nodes of a tree: k-means of the rows of each node, thousands of nodes in one call.
//
// Large nodes run one after the other on all threads, all others in parallel on one thread each. A
// node draws with its own seed, so the result depends neither on threads nor on the order of work.
// A node gets the clustering of the public KMeans for its rows, k and seed; but in float64, rows at
// the same distance from two initial centres may get the other label, because KMeans takes the
// norms of these centres from NumPy.
//
// Memory: a copy of the rows of one node per thread, and the memory of a fit beside its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/shared_centres.hpp"
#include "exactmeans/data/rows.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/numerics/frame.hpp"
#include "exactmeans/numerics/metric.hpp"
#include "exactmeans/update/cluster_sums.hpp"

namespace exactmeans {

// How the initial centres of a node are chosen.
enum class NodeSeeding { plus_plus, random, given };

struct SplitOptions {
    Metric metric = Metric::euclidean;  // euclidean or cosine
    NodeSeeding seeding = NodeSeeding::plus_plus;
    Size max_iter = 300;
    // The fit of a node ends when the squared movements of its centres sum to at most tol, times
    // the mean variance of the features of its rows if `relative`.
    double tol = 1e-4;
    bool relative = true;
    bool balanced = false;  // children of equal size (balance.hpp)
};

// A node to split: rows of the whole matrix, ascending, into at most k children.
struct NodeTask {
    const Size* rows;
    Size n, k;
    std::uint32_t seed;
    const Size* seeds = nullptr;  // k positions in `rows`, if seeds are given
};

// The children of a node; a single child means that the rows cannot be split.
template <class R>
struct NodeSplit {
    Frame<R> frame;
    Size children = 0, features = 0;
    std::vector<R> centres;                       // dense rows: children x features
    std::vector<SparseVector<R>> sparse_centres;  // CSR rows
    std::vector<double> inertia;                  // of each child
    std::vector<double> price;                    // of each child, if they are balanced
    Size iterations = 0;
    bool converged = false;
};

// Splits the nodes. labels[t] gets the labels of the rows of task t. Children without rows are left
// out.
template <class R>
std::vector<NodeSplit<R>> split_nodes(const AnyRows& rows, const std::vector<NodeTask>& tasks,
                                      const std::vector<std::int32_t*>& labels,
                                      const SplitOptions& options, const Threads& threads);

// The results of a bisection, beside labels and centres.
struct BisectResult {
    bool done = false;  // false: the general loop must do it (tree/bisection.hpp)
    Size iterations = 0;
    double inertia[2] = {0, 0};
};

// Lloyd's loop of two centres on some rows of a dense matrix, ascending, on all threads. The sums
// must be empty; their grids hold for the rows.
template <class R>
BisectResult bisect_rows(const DenseRows<R>& x, const std::vector<std::int32_t>& rows,
                         SharedCentres<R>& shared, Sums& sums, const double* origin,
                         double tolerance, Size max_iter, std::int32_t* labels,
                         const Threads& threads);

}  // namespace exactmeans
