// The centres, a plain value: the master copy, as the user sees it, with norms, score offsets and
// versions. Layouts for the kernels are derived from the centres (centres/layout_cache.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/centres/movement.hpp"
#include "exactmeans/data/sparse_vector.hpp"
#include "exactmeans/kernels/panels.hpp"
#include "exactmeans/kernels/vectors.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/numerics/frame.hpp"

namespace exactmeans {

// A version that no other centres in this process have.
inline Size new_version() {
    static std::atomic<Size> last = 0;
    return 1 + last.fetch_add(1, std::memory_order_relaxed);
}

// The master copy is dense, k x d, or, for CSR rows, one sparse vector per centre.
template <class R>
class Centres {
public:
    Centres(const R* centres, Size k, Size d, Frame<R> frame, const Threads& threads)
        : Centres(k, d, std::move(frame)) {
        master_.assign(centres, centres + k * d);
        derive_norms(threads);
    }
    Centres(std::vector<SparseVector<R>> centres, Size d, Frame<R> frame, const Threads& threads)
        : Centres(Size(centres.size()), d, std::move(frame)) {
        if (!frame_.shift.empty()) throw std::invalid_argument("sparse centres have no shift");
        sparse_ = std::move(centres);
        derive_norms(threads);
    }

    Size k() const { return k_; }
    Size d() const { return d_; }
    bool sparse() const { return !sparse_.empty(); }
    const Frame<R>& frame() const { return frame_; }
    const R* master() const { return master_.data(); }
    const R* master(Size j) const { return master_.data() + j * d_; }
    const std::vector<SparseVector<R>>& sparse_master() const { return sparse_; }
    const SparseVector<R>& sparse_master(Size j) const { return sparse_[std::size_t(j)]; }

    // A value of a dense centre as scores use it, before scaling: shifted like the rows and
    // rounded.
    R derived(Size j, Size f) const {
        const R value = master(j)[f];
        return frame_.shift.empty() ? value : value - frame_.shift[std::size_t(f)];
    }

    // Replaces the squared norms until the centres move: in the first pass, scikit-learn's rounding
    // of them decides the labels of rows that share no feature with any centre. norm_terms is the
    // number of roundings in these norms (numerics/slack.hpp).
    void set_norms(const double* norms2, Size norm_terms) {
        version_ = new_version();
        for (Size j = 0; j < k_; ++j)
            if (std::isfinite(score_offset_[std::size_t(j)]))
                score_offset_[std::size_t(j)] = R(0.5 * norms2[j]);
        norm_terms_ = norm_terms;
        norms_given_ = true;
    }
    bool norms_given() const { return norms_given_; }
    Size norm_terms() const { return norm_terms_; }
    const R* score_offset() const { return score_offset_.data(); }
    // The squared norm of the shifted, scaled centre in float64; infinite if it overflows.
    double norm2(Size j) const { return norm2_[std::size_t(j)]; }
    // Are the scores of all centres finite? A centre out of range has score offset infinity, so its
    // scores are infinite or NaN (docs/numerics.md, "Range").
    bool in_range() const { return in_range_; }
    // The largest norm of a centre.
    double longest() const { return longest_; }

    // Moves the centres and returns the movement. next(j, buffer) returns the new position of
    // centre j, or null if it does not move. Positions are arrays of d values, in the buffer or
    // elsewhere, or, if the centres are sparse, the buffer itself. Then the followers, centres of
    // empty clusters, move to the new position of `leader`.
    template <class Next>
    Movement move(Next next, const std::vector<Size>& followers, Size leader,
                  const Threads& threads) {
        MovementBuilder builder(k_);
        const MoveGuard guard(*this, builder.movement);
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int) {
            if constexpr (std::is_invocable_v<Next, Size, R*>) {
                std::vector<R> buffer(static_cast<std::size_t>(d_));
                for (Size j = begin; j < end; ++j) replace(j, next(j, buffer.data()), builder);
            } else {
                SparseVector<R> buffer;
                for (Size j = begin; j < end; ++j) replace(j, next(j, buffer), builder);
            }
        });
        return finish_move(builder, followers, leader);
    }
    // The same for sparse centres: go(j, centre, worker) updates a centre in place and returns its
    // displacement, or nothing if it did not move.
    template <class Go>
    Movement move_in_place(Go go, const std::vector<Size>& followers, Size leader,
                           const Threads& threads) {
        MovementBuilder builder(k_);
        const MoveGuard guard(*this, builder.movement);
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int worker) {
            for (Size j = begin; j < end; ++j) {
                const std::optional<Displacement> displacement =
                    go(j, sparse_[std::size_t(j)], worker);
                if (displacement)
                    record_move(j, displacement->step2, displacement->step2, displacement->norm2,
                                builder);
                else
                    record_unmoved(j);
            }
        });
        return finish_move(builder, followers, leader);
    }
    Movement move(const R* centres, const Threads& threads) {
        return move([&](Size j, R*) { return centres + j * d_; }, {}, 0, threads);
    }
    Movement move(const std::vector<SparseVector<R>>& centres, const Threads& threads) {
        const auto next = [&](Size j, SparseVector<R>& buffer) -> SparseVector<R>* {
            if (is_at(j, &centres[std::size_t(j)])) return nullptr;
            buffer = centres[std::size_t(j)];
            return &buffer;
        };
        return move(next, {}, 0, threads);
    }

    // version() identifies the state of the centres. It changes whenever a layout of them must
    // change; only copies of the same centres have the same version. moved_in(j) is the version in
    // which centre j last moved.
    Size version() const { return version_; }
    Size moved_in(Size j) const { return moved_in_[std::size_t(j)]; }

    // Calls visit(f, value) for every feature of a dense centre, or the stored features of a sparse
    // one.
    template <class Visit>
    void for_values(Size j, Visit visit) const {
        if (!sparse()) {
            for (Size f = 0; f < d_; ++f) visit(f, master(j)[f]);
            return;
        }
        const SparseVector<R>& own = sparse_master(j);
        for (Size t = 0; t < own.size(); ++t)
            visit(Size(own.feature[std::size_t(t)]), own.value[std::size_t(t)]);
    }
    // A centre as a sparse vector; a dense centre is converted into the buffer.
    const SparseVector<R>& nonzeros(Size j, SparseVector<R>& buffer) const {
        if (sparse()) return sparse_master(j);
        buffer.clear();
        for_values(j, [&](Size f, R value) {
            if (value != 0) buffer.push(f, value);
        });
        return buffer;
    }
    SparseVector<R> nonzeros(Size j) const {
        SparseVector<R> buffer;
        return nonzeros(j, buffer);
    }
    // Are two centres equal bit for bit?
    bool same(Size a, Size b) const {
        return sparse() ? sparse_master(a) == sparse_master(b) : is_at(a, master(b));
    }

    // The values of centre j at the features of a CSR row.
    template <class I>
    void values_at(Size j, const I* feature, Size count, double* out) const {
        if (!sparse()) {
            for (Size t = 0; t < count; ++t) out[t] = double(master(j)[feature[t]]);
            return;
        }
        const SparseVector<R>& own = sparse_master(j);
        const auto *at = own.feature.data(), *end = at + own.size();
        for (Size t = 0; t < count; ++t) {
            at = std::lower_bound(at, end, std::uint32_t(feature[t]));
            const bool has = at != end && Size(*at) == Size(feature[t]);
            out[t] = has ? double(own.value[std::size_t(at - own.feature.data())]) : 0.0;
        }
    }

private:
    Centres(Size k, Size d, Frame<R> frame)
        : k_(k),
          d_(d),
          frame_(std::move(frame)),
          score_offset_(std::size_t(padded<R>(k)), std::numeric_limits<R>::infinity()),
          norm2_(std::size_t(k)),
          moved_in_(std::size_t(k), version_) {
        if (k > largest_k) throw std::invalid_argument("there may be at most 2^24 centres");
    }

    // A move in progress. The version changes before the first centre moves, and in_range() is
    // updated even if Ctrl-C or an exception ends the move. So layouts that are made later are
    // valid, and bounds of the version before are recognised as such, because no Movement leads
    // from there to the new version.
    struct MoveGuard {
        Centres& centres;

        MoveGuard(Centres& moved, Movement& movement) : centres(moved) {
            movement.from = centres.version_;
            movement.to = centres.version_ = new_version();
        }
        MoveGuard(const MoveGuard&) = delete;
        ~MoveGuard() { centres.find_range(); }
    };

    // Small centres share a task, because a task has a fixed cost.
    Size centres_per_task() const {
        Size width = std::max<Size>(1, d_);
        if (sparse()) {
            Size total = 0;
            for (const SparseVector<R>& centre : sparse_) total += centre.size();
            width = total / k_ + 1;
        }
        return std::max<Size>(1, cost::centre_values_per_task / width);
    }

    Movement finish_move(MovementBuilder& builder, const std::vector<Size>& followers,
                         Size leader) {
        for (const Size j : followers) {
            if (sparse()) {
                SparseVector<R> place = sparse_master(leader);
                replace(j, &place, builder);
            } else {
                replace(j, master(leader), builder);
            }
        }
        for (Size j = 0; j < k_; ++j) builder.movement.add(j, builder.master2[std::size_t(j)]);
        norms_given_ = false;
        norm_terms_ = 1;
        return std::move(builder.movement);
    }

    // Moves centre j to the position `place`, unless that is null or equal to its position. A
    // sparse position is swapped with the old one: no memory is allocated, which could fail in the
    // middle.
    template <class Place>
    void replace(Size j, Place* place, MovementBuilder& builder) {
        if (!place || is_at(j, place)) return record_unmoved(j);
        double step2, master2;
        if constexpr (std::is_same_v<std::remove_const_t<Place>, R>) {
            const R* shift = frame_.shift_or_null();
            master2 = vector_kernels<R>().step2(place, master(j), nullptr, d_, frame_.scale());
            step2 = shift ? vector_kernels<R>().step2(place, master(j), shift, d_, frame_.scale())
                          : master2;
            std::copy(place, place + d_, master_.data() + j * d_);
        } else {
            step2 = master2 = sparse_step2(*place, sparse_master(j));
            std::swap(sparse_[std::size_t(j)], *place);
        }
        record_move(j, step2, master2, norm2_of(j), builder);
    }
    void record_move(Size j, double step2, double master2, double norm2, MovementBuilder& builder) {
        // A difference, a square and up to d additions round each term by less than d + 4 units in
        // the last place. The added term covers underflow of the squares, so that a centre that
        // moved has a movement above 0.
        builder.movement.distance[std::size_t(j)] = std::sqrt(step2 + double(d_) * 0x1p-1074) *
                                                    (1 + double(d_ + 8) * 0x1p-53) * (1 + 0x1p-48);
        builder.master2[std::size_t(j)] = master2;
        moved_in_[std::size_t(j)] = version_;
        set_norm(j, norm2);
    }
    void record_unmoved(Size j) {
        // The norms of set_norms() are dropped even if the centre does not move.
        if (norms_given_) set_norm(j, norm2_of(j));
    }
    bool is_at(Size j, const R* place) const {
        return std::memcmp(master(j), place, std::size_t(d_) * sizeof(R)) == 0;
    }
    bool is_at(Size j, const SparseVector<R>* place) const { return sparse_master(j) == *place; }

    double sparse_step2(const SparseVector<R>& to, const SparseVector<R>& from) const {
        const AlignedPair<R> both(to, from);
        return vector_kernels<R>().sparse_step2(both.feature(), both.left(), both.right(),
                                                both.size(), frame_.scale());
    }

    void derive_norms(const Threads& threads) {
        threads.ranges(k_, centres_per_task(), [&](Size begin, Size end, int) {
            for (Size j = begin; j < end; ++j) set_norm(j, norm2_of(j));
        });
        find_range();
    }
    void find_range() {
        in_range_ = std::all_of(score_offset_.begin(), score_offset_.begin() + k_,
                                [](R score_offset) { return std::isfinite(score_offset); });
        longest_ = std::sqrt(*std::max_element(norm2_.begin(), norm2_.end()));
    }
    double norm2_of(Size j) const {
        if (!sparse())
            return vector_kernels<R>()
                .square_sum(master(j), frame_.shift_or_null(), d_, frame_.scale())
                .value();
        const SparseVector<R>& own = sparse_master(j);
        return vector_kernels<R>()
            .sparse_square_sum(own.feature.data(), own.value.data(), own.size(), frame_.scale())
            .value();
    }
    void set_norm(Size j, double norm2) {
        // A compensated sum is NaN if it overflows.
        norm2_[std::size_t(j)] =
            std::isfinite(norm2) ? norm2 : std::numeric_limits<double>::infinity();
        score_offset_[std::size_t(j)] = score_offset_of(j, norm2_[std::size_t(j)]);
    }

    // The score offset of centre j: half the squared norm (euclidean), the L1 norm (manhattan, CSR
    // rows) or 0 (spherical). Infinite if the centre is out of range.
    R score_offset_of(Size j, double norm2) const {
        constexpr double largest = double(std::numeric_limits<R>::max());
        constexpr R out_of_range = std::numeric_limits<R>::infinity();
        switch (frame_.metric) {
            case Metric::euclidean:
                // A quarter of the largest number, which leaves three quarters for x.c. Packed
                // values are multiplied by the squared scale, and no value exceeds the norm.
                return 0.5 * norm2 <= largest / 4 && std::sqrt(norm2) * frame_.scale() <= largest
                           ? R(0.5 * norm2)
                           : out_of_range;
            case Metric::manhattan: {
                const double sum =
                    (sparse() ? norm1(sparse_master(j).value.data(), sparse_master(j).size())
                              : norm1(master(j), d_))
                        .value();
                return sum <= largest ? R(sum) : out_of_range;
            }
            case Metric::cosine:
            case Metric::angular:
                break;
        }
        return R(0);
    }

    Size k_, d_;
    Frame<R> frame_;
    std::vector<R> master_;
    std::vector<SparseVector<R>> sparse_;
    std::vector<R> score_offset_;
    std::vector<double> norm2_;
    bool in_range_ = true;
    double longest_ = 0;
    Size norm_terms_ = 1;
    bool norms_given_ = false;
    Size version_ = new_version();
    std::vector<Size> moved_in_;
};

}  // namespace exactmeans
