"""What the views of a page are sent."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ui.run.view_state import ViewState

VALUES = st.dictionaries(st.sampled_from(["header", "notice", "timings"]), st.text(), min_size=1)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_it_holds_each_views_latest_value_and_marks_which_are_new(updates):
    state, latest = ViewState(), {}
    for values in updates:
        before = max((view["when"] for view in latest.values()), default=0)
        latest = json.loads(state.update(values)[0])
        new = {name: view["value"] for name, view in latest.items() if view["when"] > before}
        assert new == values
    merged = {name: value for values in updates for name, value in values.items()}
    assert {name: view["value"] for name, view in latest.items()} == merged


def test_lines_stay_until_there_are_others():
    state = ViewState()
    sent = [state.update({}, lines)[1] for lines in (None, "a", None, "")]
    assert sent == ["", "a", "a", ""]


def test_what_it_holds_is_no_markup_wherever_it_ends_up():
    assert "<" not in ViewState().update({"notice": "<img src=x>"})[0]
