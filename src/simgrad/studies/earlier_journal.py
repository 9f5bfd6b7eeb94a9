"""Journals of earlier versions, which Optuna wrote: its operations, read as events of a search.

One trial took several lines there; it counts from the line that says how it was drawn, which was
the last of them. A trial without that line was lost while it was asked for.
"""

import json
from typing import Any

# Optuna's numbers of operations, and of the states of a trial.
_STUDY, _TRIAL, _PARAMETER, _STATE, _NOTE = 0, 4, 5, 6, 8
_STATES = {1: "complete", 2: "stopped", 3: "failed"}


class OpCodes:
    """What the lines so far have said."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.counts: list[int] = []  # trials of each row
        self.trials: list[dict[str, Any]] = []  # of all rows

    def events(self, told: dict[str, Any]) -> list[dict[str, Any]]:
        """What one more line says; errors of any kind where it is damaged."""
        operation = told["op_code"]
        if operation == _STUDY:
            self.rows.append(str(told["study_name"]))
            self.counts.append(0)
        elif operation == _TRIAL:
            row = int(told["study_id"])
            trial = {"row": self.rows[row], "trial": self.counts[row]}
            self.trials.append({"is": trial, "asked": {}, "halved": False})
            self.counts[row] += 1
        elif operation == _PARAMETER:
            trial = self.trials[told["trial_id"]]
            trial["asked"][told["param_name"]] = _value(told)
        elif operation == _NOTE:
            return self._note(self.trials[told["trial_id"]], told["user_attr"])
        elif operation == _STATE:
            return self._state(self.trials[told["trial_id"]], told)
        elif type(operation) is not int or not 0 < operation <= 10:  # others say nothing to us
            raise ValueError(operation)
        return []

    def _note(self, trial: dict[str, Any], noted: dict[str, Any]) -> list[dict[str, Any]]:
        ((name, value),) = noted.items()
        if name == "halved":
            trial["halved"] = bool(value)
            return []
        if name != "how":
            return [{**trial["is"], name: value}]
        trial["how"] = value
        return [{**trial["is"], "asked": trial["asked"], "how": value, "halved": trial["halved"]}]

    def _state(self, trial: dict[str, Any], told: dict[str, Any]) -> list[dict[str, Any]]:
        state = _STATES.get(told["state"])
        if state is None or "how" not in trial:
            return []
        score = float(told["values"][0]) if state == "complete" else None
        return [{**trial["is"], "state": state, "score": score}]


def _value(told: dict[str, Any]) -> Any:
    number, where = told["param_value_internal"], json.loads(told["distribution"])
    choices = where["attributes"].get("choices")
    return float(number) if choices is None else choices[int(number)]
