"""Claude Code, as claude-agent-sdk brings it, on a task of two tools against a policy that follows a script: by `temper
serve`, and as the program of a training run, where its history has to be one sample.

usage: claude_code_client.py TEMPER TOKENIZER_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import claude_agent_sdk

from support import call, check, finish, readme_program, scripted_model, server, train

temper, tokenizer = sys.argv[1:3]
claude = os.path.join(os.path.dirname(claude_agent_sdk.__file__), "_bundled", "claude")


def says(url, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none",
                   "ANTHROPIC_MODEL": "policy", "ANTHROPIC_SMALL_FAST_MODEL": "policy", "IS_SANDBOX": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    done = subprocess.run([claude, "-p", "Write a file and read it.", "--output-format", "json",
                           "--dangerously-skip-permissions"], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)
    print(done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as folder:
    model = scripted_model(folder + "/model", tokenizer, [
        ("step-two", "Both is done."),
        ("step-one", call("Read", file_path=folder + "/work/file.txt")),
    ], call("Bash", command="echo step-two > file.txt; echo step-one", description="Write"))
    os.makedirs(folder + "/work")
    with server(temper, model) as url:
        result = says(url, folder + "/work")
    check("Claude Code plays two tools", result["result"] == "Both is done." and not result["is_error"])
    read = call("Bash", command="cat file.txt", description="Read")
    model = scripted_model(folder + "/trained", tokenizer, [("step-two", "Both is done."), ("step-one", read)],
                           call("Bash", command="echo step-two > file.txt; echo step-one", description="Write"))
    lines = [{"prompt": "Write a file and read it.", "test": "assert open('file.txt').read() == 'step-two\\n'"}]
    path = os.path.dirname(claude) + ":" + os.environ["PATH"]
    samples = train(temper, folder, model, readme_program(folder, "claude_agent.py"), lines, {"PATH": path})
    check("a session of Claude Code is one sample of three turns", len(samples) == 2 and all(
        s["turns"] == 3 and s.get("fork", 0) == 0 and s["end_reason"] == "done" for s in samples))
    check("its work is rewarded", all(s["reward"] == 1.0 for s in samples))
finish()
