"""What the views of a tab are told."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ui.run.view_state import Board

VALUES = st.dictionaries(st.sampled_from(["header", "notice", "timings"]), st.text(), min_size=1)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_a_board_holds_each_views_last_value_and_what_is_new_is_told_from_what_is_not(told):
    board, last = Board(), {}
    for values in told:
        before = max((shown["when"] for shown in last.values()), default=0)
        last = json.loads(board.tell(values))
        new = {name: shown["value"] for name, shown in last.items() if shown["when"] > before}
        assert new == values
    latest = {name: value for values in told for name, value in values.items()}
    assert {name: shown["value"] for name, shown in last.items()} == latest


def test_what_a_board_holds_is_no_markup_wherever_it_ends_up():
    assert "<" not in Board().tell({"notice": "<img src=x>"})
