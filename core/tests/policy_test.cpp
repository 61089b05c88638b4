// Plans of `moving`, from statistics alone.
#include "exactmeans/assign/sparse/policy.hpp"

#include "check.hpp"

using namespace exactmeans;

namespace {

// The plans of pass after pass.
struct Groups {
    CentreStats centres{100, 100, true, 0};
    PlanState state{};
    Prune after(Size changed, Size compared) {
        const Planned next = plan_groups({1000, 40000, changed, compared}, centres, state);
        state = next.state;
        CHECK_EQ(state.pruned, next.plan.prune != Prune::nothing);
        return next.plan.prune;
    }
};
struct Outliers {
    CentreStats centres{1000, 600, true, 1000};
    PlanState state{};
    PassPlan after(Size changed, Size compared) {
        const Planned next = plan_outliers({1000, 40000, changed, compared}, centres, state);
        state = next.state;
        CHECK_EQ(state.pruned, next.plan.prune != Prune::nothing);
        return next.plan;
    }
};
struct Table {
    TableCosts centres{200, 300, 200 * 300, true};
    TableState state{};
    PassPlan after(Size nonzeros, Size changed, Size compared) {
        const TablePlanned next = plan_table({1000, nonzeros, changed, compared}, centres, state);
        state = next.state;
        return next.plan;
    }
};

}  // namespace

TEST(groups_need_few_changes_and_few_survivors) {
    Groups groups;
    CHECK(groups.after(251, 1000) == Prune::nothing);
    CHECK(groups.after(250, 1000) == Prune::by_groups);
    CHECK(groups.after(250, 600) == Prune::by_groups);
    // A plan that leaves most rows is tried again after one pass, then after two.
    CHECK(groups.after(10, 800) == Prune::nothing);
    CHECK(groups.after(10, 1000) == Prune::by_groups);
    CHECK(groups.after(10, 800) == Prune::nothing);
    CHECK(groups.after(10, 1000) == Prune::nothing);
    CHECK(groups.after(10, 1000) == Prune::by_groups);
    groups.centres.has_previous = false;
    CHECK(groups.after(10, 10) == Prune::nothing);
}

TEST(plans_without_rows_prune_nothing) {
    CHECK(plan_groups({}, {100, 10, true, 10}, {}).plan.prune == Prune::nothing);
    CHECK(plan_outliers({}, {1000, 10, true, 10}, {}).plan.prune == Prune::nothing);
    CHECK(plan_table({}, {100, 10, 10, true}, {}).plan.prune == Prune::nothing);
    CHECK(!plan_table({}, {100, 10, 10, true}, {}).plan.remember);
}

TEST(outliers_shrink_while_few_rows_are_left) {
    Outliers outliers;
    CHECK(outliers.after(251, 1000).prune == Prune::nothing);
    PassPlan plan = outliers.after(250, 1000);
    CHECK(plan.prune == Prune::by_outliers);
    CHECK_EQ(plan.outliers, Size(600));  // at first, all that moved
    for (const Size wanted : {320, 192, 128, 64}) {
        plan = outliers.after(10, 5);
        CHECK(plan.prune == Prune::by_outliers);
        CHECK_EQ(plan.outliers, wanted);
    }
    plan = outliers.after(10, 5);
    CHECK(plan.prune == Prune::by_table);
    CHECK_EQ(plan.outliers, Size(0));
}

TEST(outliers_grow_while_many_rows_are_left) {
    Outliers outliers;
    outliers.state.outlier_limit = 64;
    outliers.after(10, 1000);
    CHECK_EQ(outliers.after(10, 150).outliers, Size(128));
    CHECK_EQ(outliers.after(10, 150).outliers, Size(256));
    CHECK_EQ(outliers.after(10, 150).outliers, Size(256));  // 300 lanes of leftovers: balanced
}

TEST(a_table_alone_that_failed_is_not_tried_for_16_passes) {
    Outliers outliers;
    outliers.state.outlier_limit = 0;
    CHECK(outliers.after(10, 0).prune == Prune::by_table);
    CHECK_EQ(outliers.after(10, 100).outliers, Size(64));
    for (int pass = 1; pass < 16; ++pass) CHECK_EQ(outliers.after(10, 0).outliers, Size(64));
    CHECK(outliers.after(10, 0).prune == Prune::by_table);
}

TEST(a_table_alone_needs_very_few_changes) {
    for (const Size changed : {62, 63}) {
        Outliers outliers;
        outliers.state.outlier_limit = 0;
        CHECK(outliers.after(changed, 1000).prune ==
              (changed == 62 ? Prune::by_table : Prune::nothing));
    }
}

TEST(outliers_keep_within_memory) {
    Outliers outliers;
    outliers.centres.most_outliers = 100;
    CHECK_EQ(outliers.after(10, 1000).outliers, Size(64));
    outliers.state = {};
    outliers.centres.most_outliers = 0;
    CHECK(outliers.after(10, 1000).prune == Prune::by_table);
    outliers.state = {};
    outliers.centres.most_outliers = -1;
    CHECK(outliers.after(10, 1000).prune == Prune::nothing);
}

TEST(few_moved_centres_need_no_table) {
    Outliers outliers;
    outliers.centres.moved = 40;
    CHECK_EQ(outliers.after(10, 1000).outliers, Size(40));
}

TEST(outliers_that_do_not_pay_are_dropped) {
    Outliers outliers;
    CHECK(outliers.after(10, 1000).prune == Prune::by_outliers);
    CHECK(outliers.after(10, 900).prune == Prune::nothing);
    CHECK(outliers.after(10, 1000).prune == Prune::by_outliers);
    CHECK(outliers.after(10, 900).prune == Prune::nothing);
    CHECK(outliers.after(10, 1000).prune == Prune::nothing);
    CHECK(outliers.after(10, 1000).prune == Prune::by_outliers);
}

TEST(a_table_without_the_filter) {
    Table table;
    const Size many = 500 * 300;
    CHECK(!table.after(many, 1000, 1000).remember);
    CHECK(!table.after(many, 126, 1000).remember);
    CHECK(table.after(many, 125, 1000).remember);
    CHECK(table.after(many, 32, 1000).prune == Prune::nothing);
    CHECK(table.after(many, 31, 1000).prune == Prune::by_table);
    CHECK(table.after(many, 31, 600).prune == Prune::by_table);
    // A table that leaves most rows is tried again after two passes, then after three.
    CHECK(table.after(many, 10, 601).prune == Prune::nothing);
    CHECK(table.after(many, 10, 1000).prune == Prune::nothing);
    CHECK(table.after(many, 10, 1000).prune == Prune::by_table);
    for (int pass = 0; pass < 3; ++pass) CHECK(table.after(many, 10, 1000).prune == Prune::nothing);
    CHECK(table.after(many, 10, 1000).prune == Prune::by_table);
    // Long centres: comparing them costs too much beside a pass over the rows.
    CHECK(!table.after(many - 1, 10, 10).remember);
    table.centres.has_previous = false;
    CHECK(table.after(many, 10, 10).prune == Prune::nothing);
    table.centres.has_previous = true;
    CHECK(table.after(many, 10, 10).prune == Prune::by_table);
    table.centres = {1000, 2000, 100, true};
    CHECK(table.after(500, 10, 10).remember);
    table.centres.d = 2001;  // more features than four per nonzero of the rows
    CHECK(!table.after(500, 10, 10).remember);
}
