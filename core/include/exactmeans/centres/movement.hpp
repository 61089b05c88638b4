// The movement of the centres in one update: which centres moved, and how far. Algorithms that keep
// bounds adjust them by the movement alone.
#pragma once

#include <algorithm>
#include <vector>

#include "exactmeans/data/rows.hpp"

namespace exactmeans {

// The largest movement of a set of centres, and the second largest.
struct TwoFarthest {
    double first = 0, second = 0;
    Size index = -1;  // the centre that moved farthest

    void add(Size j, double moved_by) {
        if (moved_by > first) {
            second = first;
            first = moved_by;
            index = j;
        } else {
            second = std::max(second, moved_by);
        }
    }
    double of_others(Size j) const { return j == index ? second : first; }
};

// The update of one centre: its squared movement, and its squared norm afterwards.
struct Displacement {
    double step2, norm2;
};

struct Movement {
    // The versions of the centres before and after (Centres::version). Whoever keeps bounds for a
    // version adjusts them by a movement from that version only.
    Size from = -1, to = -1;
    // Movement per centre, rounded up, on the scale of the frame; exactly 0 if it did not move.
    std::vector<double> distance;
    Size moved = 0;  // number of centres that moved
    // Sum of squared movements of the unshifted centres on the same scale, for the stopping rule
    // (scikit-learn's center_shift_tot).
    double shift2 = 0;
    TwoFarthest farthest;

    // Adds centre j, whose distance is set, to the totals.
    void add(Size j, double master2) {
        const double moved_by = distance[std::size_t(j)];
        moved += moved_by > 0;
        shift2 += master2;
        farthest.add(j, moved_by);
    }
};

// A movement under construction, centre by centre.
struct MovementBuilder {
    Movement movement;
    std::vector<double> master2;  // squared movement of the unshifted centre

    explicit MovementBuilder(Size k) : master2(static_cast<std::size_t>(k)) {
        movement.distance.assign(std::size_t(k), 0.0);
    }
};

}  // namespace exactmeans
