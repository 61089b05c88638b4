// Layouts show the centres of one version: also after an update that was interrupted, after a move
// that was interrupted, and while another thread holds them.
#include "exactmeans/centres/layout_cache.hpp"

#include <memory>
#include <thread>
#include <vector>

#include "cancel.hpp"
#include "check.hpp"
#include "exactmeans/centres/groups.hpp"
#include "exactmeans/centres/single_centres.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size k = 300, d = 700;

enum class Kind { dense, sparse, posting_lists };

// Centres that many tests move.
struct Sample {
    Kind kind;
    Random random{1};
    Matrix<double> at{k, d, [this] { return random.unit() < 0.2 ? random.normal() : 0.0; }};
    Centres<double> centres = made();
    LayoutCache<double> layouts;

    explicit Sample(Kind of) : kind(of) {
        if (kind == Kind::posting_lists) layouts.set_rare_below(k / 5);
    }
    // Some centres move; `factor` also sets how many.
    Movement move(double factor, const Threads& threads = Threads{}) {
        for (Size j = 0; j < k; ++j)
            for (Size f = 0; f < d && j % 4; ++f) at(j, f) *= factor;
        return kind == Kind::dense ? centres.move(at.values.data(), threads)
                                   : centres.move(sparse_of(at), threads);
    }

private:
    Centres<double> made() const {
        return kind == Kind::dense ? Centres<double>(at.values.data(), k, d, {}, Threads{})
                                   : Centres<double>(sparse_of(at), d, {}, Threads{});
    }
};

// Do panels show these centres? centre(place) is the centre at a place.
template <class V, class Centre>
bool shows(const Panels<V>& panels, const Centres<double>& centres, Centre centre) {
    for (Size p = 0; p < panels.count; ++p) {
        const auto panel = panels.panel(p);
        for (Size place = panel.first; place < std::min(k, panel.first + panel.width()); ++place) {
            const Size j = centre(place);
            if (panels.score_offset[place] != V(centres.score_offset()[j])) return false;
            std::vector<V> wanted(std::size_t(d), V(0)), got(wanted);
            centres.for_values(j, [&](Size f, double c) { wanted[std::size_t(f)] = V(-c); });
            for (Size f = 0; f < d; ++f) {
                const Size column = panels.packed_columns ? Size(panels.packed_columns[f]) : f;
                if (column < panels.d)
                    got[std::size_t(f)] =
                        panels.values[panel.first * panels.d + column * panel.width() + place -
                                      panel.first];
                else if (Size(column) != Size(no_column))
                    for (const Posting<V>* own = panels.postings + (column - panels.d);; ++own) {
                        if (Size(own->place & ~Posting<V>::last) == place)
                            got[std::size_t(f)] = own->value;
                        if (own->place & Posting<V>::last) break;
                    }
            }
            if (!(got == wanted)) return false;
        }
    }
    return true;
}
template <class V>
bool shows(const Panels<V>& panels, const Centres<double>& centres) {
    return shows(panels, centres, [](Size place) { return place; });
}
bool shows(const Groups<double>& groups, const Centres<double>& centres) {
    return shows(groups.panels(), centres, [&](Size place) { return groups.centre(place); });
}

// The layouts of a sample, all brought up to date; false if one of them shows other centres.
bool all_right(Sample& sample, const Threads& threads = Threads{}) {
    const bool dense = sample.kind == Kind::dense;
    bool right =
        shows(*sample.layouts.get<Groups<double>>(sample.centres, dense, threads), sample.centres);
    right &= shows(sample.layouts.panels(sample.centres, dense, threads), sample.centres);
    if (!dense)
        right &= shows(sample.layouts.float32_panels(sample.centres, threads), sample.centres);
    return right;
}

constexpr Kind kinds[] = {Kind::dense, Kind::sparse, Kind::posting_lists};

}  // namespace

TEST(layouts_follow_the_centres) {
    for (const Kind kind : kinds) {
        Sample sample(kind);
        CHECK(all_right(sample));
        for (const double factor : {1.5, 0.5}) {
            sample.move(factor);
            CHECK(all_right(sample, Threads{3}));
        }
        // A score offset changes without a move.
        sample.centres.set_norms(std::vector<double>(std::size_t(k), 2.0).data(), 3);
        CHECK(all_right(sample));
        if (kind != Kind::dense)
            CHECK_EQ(sample.layouts.panels(sample.centres, false, Threads{}).postings != nullptr,
                     kind == Kind::posting_lists);
    }
}

TEST(an_update_that_is_cancelled_leaves_nothing_stale) {
    for (const Kind kind : kinds)
        for (int chunks = 0; chunks < 4; ++chunks) {
            Sample sample(kind);
            CHECK(all_right(sample));
            const Centres<double> before = sample.centres;
            sample.move(1.5);
            CancelAfter cancel(chunks);
            CHECK_THROWS(all_right(sample, Threads{1, cancel}), Interrupted);
            // The next pass has the same centres, others, or those of before.
            if (chunks == 1) sample.move(0.5);
            if (chunks == 2) sample.centres = before;
            CHECK(all_right(sample));
        }
}

TEST(a_move_that_is_cancelled_leaves_nothing_stale) {
    for (const Kind kind : kinds) {
        Sample sample(kind);
        CHECK(all_right(sample));
        const Centres<double> before = sample.centres;
        CancelAfter cancel(2);
        CHECK_THROWS(sample.move(1e160, Threads{1, cancel}), Interrupted);
        CHECK(!sample.centres.same(1, 1) || sample.centres.version() != before.version());
        CHECK(!sample.centres.in_range());  // some have moved out of range
        CHECK(all_right(sample));
    }
}

TEST(a_layout_that_is_held_does_not_change) {
    for (const Kind kind : kinds) {
        Sample sample(kind);
        const bool dense = kind == Kind::dense;
        const HeldPanels<double> panels = sample.layouts.panels(sample.centres, dense, Threads{});
        const auto groups = sample.layouts.get<Groups<double>>(sample.centres, dense, Threads{});
        const Centres<double> before = sample.centres;
        sample.move(2.0);
        CHECK(all_right(sample));
        CHECK(shows(panels, before));
        CHECK(shows(*groups, before));
        // Bounds belong to the partition, which a copy keeps.
        const auto now = sample.layouts.get<Groups<double>>(sample.centres, dense, Threads{});
        CHECK(now != groups && now->partition() == groups->partition());
        // An update that is cancelled does not touch it either.
        sample.move(0.5);
        CancelAfter cancel(1);
        CHECK_THROWS(all_right(sample, Threads{1, cancel}), Interrupted);
        CHECK(shows(panels, before) && shows(*groups, before));
        CHECK(all_right(sample));
    }
}

// Run under ThreadSanitizer.
TEST(a_held_layout_is_read_while_the_centres_move) {
    Sample sample(Kind::dense);
    const Centres<double> before = sample.centres;
    HeldPanels<double> panels = sample.layouts.panels(sample.centres, true, Threads{});
    bool right = false;
    std::thread reader([&, held = std::move(panels)] { right = shows(held, before); });
    sample.move(2.0);
    CHECK(all_right(sample));
    reader.join();
    CHECK(right);
}

TEST(a_layout_that_nobody_holds_is_updated_in_place) {
    Sample sample(Kind::dense);
    const auto address = [&] {
        return sample.layouts.panels(sample.centres, true, Threads{}).values;
    };
    const double* const before = address();
    sample.move(2.0);
    CHECK_EQ(address(), before);
}

TEST(panels_keep_their_layout_alive) {
    Sample sample(Kind::sparse);
    auto layouts = std::make_unique<LayoutCache<double>>();
    const HeldPanels<double> panels = layouts->panels(sample.centres, false, Threads{});
    layouts.reset();
    CHECK(shows(panels, sample.centres));
}

TEST(layouts_of_one_pass_live_side_by_side) {
    Sample sample(Kind::dense);
    std::weak_ptr<const Groups<double>> groups;
    std::weak_ptr<const SingleCentres<double>> singles;
    const auto pass = [&](bool by_groups, bool by_singles) {
        (void)sample.layouts.panels(sample.centres, true, Threads{});
        if (by_groups) groups = sample.layouts.get<Groups<double>>(sample.centres, true, Threads{});
        if (by_singles)
            singles = sample.layouts.get<SingleCentres<double>>(sample.centres, true, Threads{});
        sample.move(1.1);
    };
    pass(true, true);
    const auto* first = groups.lock().get();
    pass(true, true);
    CHECK_EQ(groups.lock().get(), first);
    pass(false, true);
    pass(false, true);
    CHECK(!groups.expired());
    // A new layout takes the room of one that two passes did not use.
    (void)sample.layouts.panels(sample.centres, false, Threads{});
    CHECK(groups.expired() && !singles.expired());
}

TEST(copies_of_centres_may_share_a_cache) {
    Sample sample(Kind::dense);
    CHECK(all_right(sample));
    Centres<double> copy = sample.centres;
    CHECK_EQ(copy.version(), sample.centres.version());
    const Matrix<double> other(k, d, [] { return 3.0; });
    copy.move(other.values.data(), Threads{});
    sample.move(2.0);
    CHECK(copy.version() != sample.centres.version());
    for (int repeat = 0; repeat < 2; ++repeat) {
        CHECK(shows(sample.layouts.panels(copy, true, Threads{}), copy));
        CHECK(all_right(sample));
    }
}

TEST(sparse_centres_have_no_layout_for_dense_rows) {
    Sample sample(Kind::sparse);
    CHECK_THROWS(sample.layouts.panels(sample.centres, true, Threads{}), std::invalid_argument);
}
