"""mini-swe-agent, its own agent, prompts and environment, against a policy that follows a script.

usage: mini_swe_agent_client.py TEMPER TOKENIZER_DIR
"""
import os
import sys
import tempfile

os.environ.update(MSWEA_SILENT_STARTUP="1", MSWEA_COST_TRACKING="ignore_errors", LITELLM_LOCAL_MODEL_COST_MAP="True",
                  MSWEA_GLOBAL_CONFIG_DIR=tempfile.mkdtemp(), OPENAI_API_KEY="none")
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

from support import call, check, finish, scripted_model, server

temper, tokenizer = sys.argv[1:3]
with tempfile.TemporaryDirectory() as folder:
    # A turn with a call, one whose call cannot be read, one with two calls, the end.
    model = scripted_model(folder + "/model", tokenizer, [
        ("step-two", call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat file.txt")),
        ("step-one", call("bash", command="echo first >> file.txt") + "\n" +
         call("bash", command="echo second >> file.txt && echo step-two")),
        ("Tool call error", "I write the file.\n" + call("bash", command="echo step-one")),
    ], "I forget how to call.\n<tool_call>\n{\"name\": \n</tool_call>")
    with open(builtin_config_dir / "mini.yaml") as file:
        config = yaml.safe_load(file)
    with server(temper, model) as url:
        agent_keys = {k: v for k, v in config["agent"].items() if k in ("system_template", "instance_template")}
        agent = DefaultAgent(
            LitellmModel(**{**config["model"], "model_name": "openai/policy",
                            "model_kwargs": {**config["model"].get("model_kwargs", {}), "api_base": url + "/v1"}}),
            LocalEnvironment(cwd=folder, **config.get("environment", {})), **agent_keys, step_limit=8)
        result = agent.run("Write two lines.")
        print(result)
    check("the agent submits", result["exit_status"] == "Submitted")
    with open(folder + "/file.txt") as file:
        check("both calls of a turn were run", file.read() == "first\nsecond\n")
finish()
