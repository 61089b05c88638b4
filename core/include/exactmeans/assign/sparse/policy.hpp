// Plans the next pass of `moving` from the statistics of the last one: pure functions of their
// arguments, without rows, centres or clock. Constants: base/cost_model.hpp.
#pragma once

#include <algorithm>
#include <utility>

#include "exactmeans/base/backoff.hpp"
#include "exactmeans/base/cost_model.hpp"
#include "exactmeans/kernels/quantized.hpp"

namespace exactmeans {

// Statistics of a pass, or of a part of it.
struct PassStats {
    Size rows = 0, nonzeros = 0;
    Size changed = 0;   // rows whose label changed
    Size compared = 0;  // rows that were compared with all centres

    PassStats& operator+=(const PassStats& other) {
        rows += other.rows;
        nonzeros += other.nonzeros;
        changed += other.changed;
        compared += other.compared;
        return *this;
    }
};

// How a pass prunes rows, before it compares the survivors with all centres.
enum class Prune {
    nothing,      // all rows are compared
    by_groups,    // a bound per group of centres
    by_outliers,  // scores of the centres that changed most, one table for the others
    by_table,     // one table bounds all centres
};
struct PassPlan {
    Prune prune = Prune::nothing;
    Size outliers = 0;     // by_outliers: how many centres are outliers
    bool remember = true;  // keep these centres, so that the next pass can bound their change
};

// Statistics of the centres.
struct CentreStats {
    Size k = 0, moved = 0;      // centres; those that moved since the last pass
    bool has_previous = false;  // are the centres of the last pass known?
    Size most_outliers = 0;     // that fit in memory; -1: the codes of all centres do not
};

// State from plan to plan.
struct PlanState {
    Backoff backoff{0, cost::longest_wait};  // passes without bounds after a plan that did not pay
    bool pruned = false;                     // did the last pass prune?
    Size outlier_limit = -1;                 // the most outliers; -1: not chosen yet
    double planned = 0;                      // cost of a row by the last plan, without survivors
    // Passes without a table alone, after one with too many survivors.
    Backoff table_alone{cost::longest_wait - 1, cost::longest_wait - 1};
};
struct Planned {
    PassPlan plan;
    PlanState state;
};

namespace policy {

// The cost of scoring this many centres: they take whole units of lanes.
inline double lanes(Size centres) { return double(QuantizedPanels::padded(centres)); }

inline bool bounds_may_pay(const PassStats& last, const CentreStats& centres) {
    return centres.has_previous && last.rows > 0 &&
           cost::changed_for_bounds * last.changed <= last.rows;
}

}  // namespace policy

// With the 8-bit filter and one panel of centres: prunes by groups, while few labels change and the
// last such pass paid.
inline Planned plan_groups(const PassStats& last, const CentreStats& centres, PlanState state) {
    const bool pruned = std::exchange(state.pruned, false);
    if (!policy::bounds_may_pay(last, centres) || !state.backoff.due()) return {{}, state};
    if (pruned) {
        const double full = policy::lanes(centres.k) + cost::quantize_row, rows = double(last.rows);
        const bool paid = cost::group_delta_sum * rows + full * double(last.compared) <=
                          cost::kept_share * full * rows;
        state.backoff.record(paid);
        if (!paid) return {{}, state};
    }
    state.pruned = true;
    return {{Prune::by_groups}, state};
}

// With the 8-bit filter and several panels: chooses the number of outliers (`outlier_limit`) so
// that scoring them costs about as much as comparing the survivors with all centres. Doubles it if
// survivors cost over twice as much, halves it if they cost less than a quarter.
inline Planned plan_outliers(const PassStats& last, const CentreStats& centres, PlanState state) {
    constexpr Size unit = QuantizedPanels::unit;
    const bool pruned = std::exchange(state.pruned, false);
    if (!policy::bounds_may_pay(last, centres)) return {{}, state};
    const bool table_alone = state.table_alone.due();
    if (!state.backoff.due()) return {{}, state};
    Size& outlier_limit = state.outlier_limit;
    if (outlier_limit < 0) outlier_limit = centres.moved;
    const double all = policy::lanes(centres.k), full = all + cost::quantize_row;
    if (pruned) {
        const double survivors =
            cost::survivor_factor * all * double(last.compared) / double(last.rows);
        if (survivors > 2 * std::max(policy::lanes(outlier_limit), policy::lanes(1))) {
            if (outlier_limit == 0) state.table_alone.record(false);
            outlier_limit = std::max(unit, 2 * outlier_limit);
        } else if (4 * survivors < policy::lanes(outlier_limit)) {
            outlier_limit = outlier_limit > unit ? outlier_limit / 2 : table_alone ? 0 : unit;
        }
        const bool paid = state.planned + survivors <= cost::kept_share * full;
        state.backoff.record(paid);
        if (!paid) return {{}, state};
    }
    for (;; outlier_limit = outlier_limit > unit ? outlier_limit / 2 : 0) {
        outlier_limit =
            std::min(QuantizedPanels::padded(outlier_limit), QuantizedPanels::padded(centres.k));
        // A table for few centres does not pay: if nearly all moved centres are outliers, all of
        // them are.
        const bool table = outlier_limit == 0 || outlier_limit + unit / 2 < centres.moved;
        const Size outliers = table ? outlier_limit : centres.moved;
        state.planned = (outliers ? policy::lanes(outliers) + cost::quantize_row : 0) +
                        (table ? cost::delta_sum : 0);
        if (state.planned < cost::promised_share * full && outliers <= centres.most_outliers) {
            state.pruned = outliers || cost::changed_for_table_alone * last.changed <= last.rows;
            if (!state.pruned) return {{}, state};
            return {{outliers ? Prune::by_outliers : Prune::by_table, outliers}, state};
        }
        if (outlier_limit == 0) return {{}, state};
    }
}

// Sizes of the centres, for a plan without the 8-bit filter.
struct TableCosts {
    Size k = 0, d = 0, nonzeros = 0;  // nonzeros of all centres
    bool has_previous = false;        // are the centres of the last pass known?
};
struct TableState {
    Backoff backoff{1, cost::longest_wait};  // passes without the table after it did not pay
    bool pruned = false;                     // did the last pass prune?
};
struct TablePlanned {
    PassPlan plan;
    TableState state;
};

// Without the 8-bit filter: prunes by one table. Centres are remembered once most labels stay and a
// pass over the rows costs much more than tabulating the change of the centres.
inline TablePlanned plan_table(const PassStats& last, const TableCosts& centres, TableState state) {
    const bool pruned = std::exchange(state.pruned, false);
    const bool remember = last.rows > 0 && cost::changed_for_history * last.changed <= last.rows &&
                          centres.d <= cost::features_per_nonzero * last.nonzeros &&
                          double(last.nonzeros) * double(centres.k) >=
                              double(cost::terms_per_centre_nonzero) * double(centres.nonzeros);
    const PassPlan all{Prune::nothing, 0, remember};
    if (!remember || !centres.has_previous || cost::changed_for_table * last.changed > last.rows ||
        !state.backoff.due())
        return {all, state};
    if (pruned) {
        const bool paid = double(last.compared) <= cost::table_survivor_share * double(last.rows);
        state.backoff.record(paid);
        if (!paid) return {all, state};
    }
    state.pruned = true;
    return {{Prune::by_table, 0, true}, state};
}

}  // namespace exactmeans
