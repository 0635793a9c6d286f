"""The runtime graders of OpenEnv's validation, on evidence that its own collector gathers; runs with OpenEnv installed.

Its other graders read the files of a package (static.manifest) or what a sandbox provider measured (network policy).
"""

import json
import sys
from types import SimpleNamespace

from openenv.validation.graders.runtime.basic import (
    ObservationSchemaGrader,
    RewardWellFormedGrader,
    StateContractGrader,
)
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan
from openenv_client import expect, verdict

ACTIONS = {
    "Echo-v0": [{"message": "a"}, {"message": "b"}],
    "ConnectFour-v0": [{"column": column} for column in (0, 1, 2)],
    "GridWorld-v0": [{"value": action} for action in (0, 1, 2, 3)],
}
GRADERS = (RewardWellFormedGrader(), ObservationSchemaGrader(), StateContractGrader())


def grade(url):
    for id, actions in ACTIONS.items():
        reset = {"episode_id": "ep-1", "seed": 1}
        plan = RuntimePlan.model_validate({"plan_schema_version": "1", "reset": reset, "actions": actions})
        evidence = collect_runtime_evidence(f"{url}/envs/{id}", plan, episode_timeout_s=60)
        expect(evidence.failure_reason, None)
        manifest = SimpleNamespace(reward=SimpleNamespace(range=(-1.0, 1.0)))
        subject = SimpleNamespace(manifest=manifest, runtime_evidence=evidence)
        for grader in GRADERS:
            result = grader.run(subject)
            expect((id, grader.check_id, result.status.value, result.evidence)[:3], (id, grader.check_id, "pass"))


if __name__ == "__main__":
    print(json.dumps({"openenv's runtime graders": verdict(grade, sys.argv[1])}))
