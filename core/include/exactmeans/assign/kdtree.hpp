// Filtering with a kd-tree (D. Pelleg, A. Moore, Accelerating exact k-means algorithms with
// geometric reasoning, KDD 1999; T. Kanungo et al., An efficient k-means clustering algorithm:
// analysis and implementation, PAMI 24, 2002).
//
// Rows of a few features are stored in a balanced tree of boxes. A node prunes the candidate
// centres that are farther than another candidate in the whole box. If one candidate remains, it is
// the label of all rows of the node; at a leaf, the remaining candidates are compared with each
// row. Memory: a copy of the rows and their labels in tree order, and eight bytes per row.
//
//   paper                here
//   kd-tree cell         box of a node: low and high per feature
//   z*                   closest: the candidate closest to the midpoint of the box
//   z.isFarther(z*, C)   is_farther(): the score of z is above that of z* in the corner of the box
//                        where their difference is least, and so in the whole box
//
// The difference of two scores is linear in the row, so its least value in a box is at a corner.
// The test allows for the rounding of both computed scores (docs/proofs/boxes.md). Unlike in the
// papers, nodes have no sums of their rows: the update uses the exact cluster sums of all
// algorithms.
#pragma once

#include <array>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "exactmeans/assign/assigner.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/centres/groups.hpp"

namespace exactmeans {

template <class R>
class Kdtree {
public:
    using Real = R;
    static constexpr Traits traits{
        "kdtree", "filtering: boxes of rows prune candidates, for few features", true, false};
    static Size bytes_per_row(Size, Size d, bool) { return d * Size(sizeof(R)) * 5 / 4 + 12; }

    Kdtree(Size n, Size k) : n_(n), k_(k) {
        if (n > Size(std::numeric_limits<std::int32_t>::max()))
            throw std::invalid_argument("kdtree takes at most 2^31 - 1 rows in a block");
        const Size most = std::clamp(n / cost::kdtree_least_leaves,
                                     Size(cost::kdtree_small_leaf_rows), leaf_rows);
        while (n_ >> depth_ > most) ++depth_;
    }

    template <class Rows>
    void start(Work<Rows>& work, const Threads& threads) {
        const Centres<R>& centroids = work.centroids;
        const Size d = work.x.d;
        if (order_.empty()) build(work, threads);
        const Slack slack = Slack::of<R>(d, d, centroids.norm_terms(), centroids.frame().exponent);
        holds_ = slack.holds();
        centres_.resize(std::size_t(k_));
        position_.resize(std::size_t(k_ * d));
        packed_.resize(std::size_t(k_ * (d + 1)));
        const std::vector<char> copy = copies_of(centroids);
        candidates_.clear();
        for (Size j = 0; j < k_; ++j) {
            if (!copy[std::size_t(j)]) candidates_.push_back(std::int32_t(j));
            const double norm2 = centroids.norm2(j);
            centres_[std::size_t(j)] = {0.5 * norm2, slack.gamma() * norm2 + slack.underflow(0),
                                        2 * slack.gamma() * std::sqrt(norm2) + slack.underflow(1)};
            for (Size f = 0; f < d; ++f) {
                const R value = centroids.derived(j, f);
                position_[std::size_t(j * d + f)] = double(value) * centroids.frame().scale();
                packed_[std::size_t(j * (d + 1) + f)] =
                    centroids.frame().packed(f, centroids.master(j)[f]);
            }
            packed_[std::size_t(j * (d + 1) + d)] = centroids.score_offset()[j];
        }
    }

    // A range labels whole subtrees, not the rows [begin, end). All ranges together label all rows.
    template <class Rows>
    AssignStats assign(const Work<Rows>& work, Scan<Rows>&, Size begin, Size) {
        const Size step = range_rows(work.x, k_, 1), ranges = (n_ + step - 1) / step;
        Walk walk{*this, work.labels, work.x.d, {}, {}, {}};
        for (Size task = begin / step; task < tasks(); task += ranges) {
            walk.list.assign(candidates_.begin(), candidates_.end());
            walk.visit(task + tasks() - 1, 0, Size(walk.list.size()));
        }
        return walk.stats;
    }

    void moved(const Movement&) {}

    template <class Rows>
    Size range_rows(const Rows&, Size, int) const {
        return std::max<Size>(1, (n_ + tasks() - 1) / tasks());
    }

private:
    static constexpr Size leaf_rows = cost::kdtree_leaf_rows;
    static constexpr Size lanes = 32;  // nearest_in_list takes multiples of it

    struct Centre {
        double half_norm2, error, error_per_norm;  // error of a score: error + error_per_norm |x|
    };

    // Nodes are numbered as in a binary heap. The subtrees at one level are the tasks.
    Size tasks() const { return Size(1) << std::min<Size>(depth_, cost::kdtree_task_level); }
    Size leaves() const { return Size(1) << depth_; }
    static Size level_of(Size v) {
        Size level = 0;
        for (Size w = v + 1; w > 1; w >>= 1) ++level;
        return level;
    }
    // The rows of node v, a range in tree order.
    std::pair<Size, Size> rows_of(Size v) const {
        const Size level = level_of(v), at = v + 1 - (Size(1) << level);
        return {at * n_ >> level, (at + 1) * n_ >> level};
    }

    template <class Rows>
    void build(const Work<Rows>& work, const Threads& threads) {
        const Size d = work.x.d, nodes = 2 * leaves() - 1;
        order_.resize(std::size_t(n_));
        std::iota(order_.begin(), order_.end(), 0);
        box_.resize(std::size_t(nodes * 2 * d));
        common_label_.assign(std::size_t(nodes), -1);
        label_.assign(std::size_t(n_), -1);
        pitch_ = ((n_ + leaves() - 1) / leaves() + lanes - 1) / lanes * lanes;
        tiles_.assign(std::size_t(leaves() * d * pitch_), R(0));
        const R* shift = work.centroids.frame().shift_or_null();
        const auto value = [&](Size i, Size f) {
            return shift ? R(work.x.at(i, f) - shift[f]) : work.x.at(i, f);
        };
        for (Size level = 0; level < depth_; ++level)
            threads.ranges(Size(1) << level, 1, [&](Size at, Size, int) {
                split((Size(1) << level) - 1 + at, d, value);
            });
        threads.ranges(leaves(), cost::kdtree_leaves_per_task, [&](Size begin, Size end, int) {
            for (Size leaf = begin; leaf < end; ++leaf) fill(leaf, d, value);
        });
        const double scale = work.centroids.frame().scale();
        for (double& bound : box_) bound *= scale;
        for (Size v = leaves() - 2; v >= 0; --v)
            for (Size f = 0; f < d; ++f) {
                low(v, d)[f] = std::min(low(2 * v + 1, d)[f], low(2 * v + 2, d)[f]);
                high(v, d)[f] = std::max(high(2 * v + 1, d)[f], high(2 * v + 2, d)[f]);
            }
    }

    double* low(Size v, Size d) { return box_.data() + v * 2 * d; }
    double* high(Size v, Size d) { return low(v, d) + d; }

    // Splits a node at the median of the feature with the largest range in a sample of the rows.
    template <class Value>
    void split(Size v, Size d, Value value) {
        const auto [begin, end] = rows_of(v);
        Size widest = 0;
        double most = -1;
        for (Size f = 0; f < d; ++f) {
            double least = value(order_[std::size_t(begin)], f), largest = least;
            for (Size t = begin; t < end; t += (end - begin) / cost::kdtree_sampled_rows + 1) {
                const double x = double(value(order_[std::size_t(t)], f));
                least = std::min(least, x);
                largest = std::max(largest, x);
            }
            if (largest - least > most) {
                most = largest - least;
                widest = f;
            }
        }
        std::vector<std::pair<R, std::int32_t>> keys;
        keys.reserve(std::size_t(end - begin));
        for (Size t = begin; t < end; ++t) {
            const std::int32_t i = order_[std::size_t(t)];
            keys.emplace_back(value(i, widest), i);
        }
        const Size middle = rows_of(2 * v + 2).first;
        std::nth_element(keys.begin(), keys.begin() + (middle - begin), keys.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        for (Size t = begin; t < end; ++t)
            order_[std::size_t(t)] = keys[std::size_t(t - begin)].second;
    }

    // Copies the rows of a leaf, feature by feature, and computes their box.
    template <class Value>
    void fill(Size leaf, Size d, Value value) {
        const Size v = leaves() - 1 + leaf;
        const auto [begin, end] = rows_of(v);
        for (Size f = 0; f < d; ++f) {
            R* tile = tiles_.data() + (leaf * d + f) * pitch_;
            low(v, d)[f] = std::numeric_limits<double>::infinity();
            high(v, d)[f] = -low(v, d)[f];
            for (Size t = begin; t < end; ++t) {
                const R x = tile[t - begin] = value(order_[std::size_t(t)], f);
                low(v, d)[f] = std::min(low(v, d)[f], double(x));
                high(v, d)[f] = std::max(high(v, d)[f], double(x));
            }
        }
    }

    // One thread's traversal of some subtrees. `list` is a stack of the candidates of the nodes on
    // the path, ascending within each node.
    struct Walk {
        Kdtree& tree;
        std::int32_t* labels;
        Size d;
        AssignStats stats;
        std::vector<std::int32_t> list;
        std::vector<R> packed;
        std::array<std::int32_t, 2 * leaf_rows> nearest{};

        void visit(Size v, Size begin, Size end) {
            const Size remaining = filter(v, begin, end);
            if (remaining == 1) {
                label_all(v, list[std::size_t(end)]);
            } else if (v >= tree.leaves() - 1) {
                compare(v, end, remaining);
            } else {
                push_down(v);
                visit(2 * v + 1, end, end + remaining);
                visit(2 * v + 2, end, end + remaining);
            }
            list.resize(std::size_t(end));
        }

        // Appends to the list those of candidates [begin, end) that may be nearest to some point of
        // the box.
        Size filter(Size v, Size begin, Size end) {
            if (!tree.holds_) {
                for (Size t = begin; t < end; ++t) list.push_back(list[std::size_t(t)]);
                return end - begin;
            }
            const double *low = tree.low(v, d), *high = tree.high(v, d);
            std::int32_t closest = -1;
            double nearest2 = std::numeric_limits<double>::infinity(), norm2 = 0;
            for (Size f = 0; f < d; ++f) norm2 += std::max(low[f] * low[f], high[f] * high[f]);
            const double norm = std::sqrt(norm2) * Slack::up;
            for (Size t = begin; t < end; ++t) {
                const std::int32_t j = list[std::size_t(t)];
                const double* at = tree.position_.data() + j * d;
                double d2 = 0;
                for (Size f = 0; f < d; ++f) {
                    const double step = at[f] - 0.5 * (low[f] + high[f]);
                    d2 += step * step;
                }
                if (d2 < nearest2) {
                    nearest2 = d2;
                    closest = j;
                }
            }
            if (closest < 0) closest = list[std::size_t(begin)];
            for (Size t = begin; t < end; ++t) {
                const std::int32_t j = list[std::size_t(t)];
                if (j == closest || !is_farther(j, closest, low, high, norm)) list.push_back(j);
            }
            return Size(list.size()) - end;
        }

        // Is every row of the box certain to have a higher score with j than with `closest`?
        bool is_farther(std::int32_t j, std::int32_t closest, const double* low, const double* high,
                        double norm) const {
            const Centre& other = tree.centres_[std::size_t(j)];
            const Centre& best = tree.centres_[std::size_t(closest)];
            const double* a = tree.position_.data() + j * d;
            const double* b = tree.position_.data() + closest * d;
            double difference = other.half_norm2 - best.half_norm2;
            for (Size f = 0; f < d; ++f) {
                const double step = a[f] - b[f];
                difference -= step * (step > 0 ? high[f] : low[f]);
            }
            const double error =
                other.error + best.error + (other.error_per_norm + best.error_per_norm) * norm;
            return difference > 2 * error;
        }

        void label_all(Size v, std::int32_t j) {
            const auto [first, last] = tree.rows_of(v);
            stats.skipped += last - first;
            if (tree.common_label_[std::size_t(v)] == j) return;
            tree.common_label_[std::size_t(v)] = j;
            for (Size t = first; t < last; ++t) put(t, j);
        }

        // The labels in tree order are read sequentially. Those of the caller are scattered, so
        // they are accessed only for the few rows whose label changes.
        void put(Size t, std::int32_t j) {
            std::int32_t& known = tree.label_[std::size_t(t)];
            if (known == j) return;
            known = j;
            std::int32_t& label = labels[tree.order_[std::size_t(t)]];
            stats.changed += label != j;
            label = j;
        }

        // Moves the common label of a node to its children, whose rows may get different labels.
        void push_down(Size v) {
            const std::int32_t all = tree.common_label_[std::size_t(v)];
            if (all >= 0)
                tree.common_label_[std::size_t(2 * v + 1)] =
                    tree.common_label_[std::size_t(2 * v + 2)] = all;
            tree.common_label_[std::size_t(v)] = -1;
        }

        void compare(Size v, Size from, Size count) {
            const auto [first, last] = tree.rows_of(v);
            packed.resize(std::size_t(count * (d + 1)));
            for (Size t = 0; t < count; ++t)
                std::copy_n(tree.packed_.data() + list[std::size_t(from + t)] * (d + 1), d + 1,
                            packed.data() + t * (d + 1));
            const R* tile = tree.tiles_.data() + (v + 1 - tree.leaves()) * d * tree.pitch_;
            score_kernels<R>().nearest_in_list(tile, tree.pitch_, d, packed.data(), count,
                                               nearest.data());
            stats.distances += (last - first) * count;
            tree.common_label_[std::size_t(v)] = -1;
            for (Size t = first; t < last; ++t)
                put(t, list[std::size_t(from + nearest[std::size_t(t - first)])]);
        }
    };

    Size n_, k_, depth_ = 0, pitch_ = 0;
    bool holds_ = false;
    std::vector<std::int32_t> order_;         // rows in tree order
    std::vector<std::int32_t> label_;         // their labels
    std::vector<double> box_;                 // per node low and high, on the frame's scale
    std::vector<std::int32_t> common_label_;  // per node: the label of all its rows, or -1
    std::vector<R> tiles_;                    // rows of each leaf, feature by feature
    std::vector<Centre> centres_;
    std::vector<double> position_;  // values of the centres, on the frame's scale
    std::vector<R> packed_;         // per centre: its packed values, and its score offset
    std::vector<std::int32_t> candidates_;
};

}  // namespace exactmeans
