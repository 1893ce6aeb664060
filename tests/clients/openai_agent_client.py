"""The agent around OpenAI's client in `temper help agents`, with the README's config, as the program of a run.

usage: openai_agent_client.py TEMPER TOKENIZER_DIR
"""
import subprocess
import sys
import tempfile

from support import check, finish, scripted_model, train

temper, tokenizer = sys.argv[1:3]
with tempfile.TemporaryDirectory() as folder:
    page = subprocess.run([temper, "help", "agents"], check=True, capture_output=True, text=True).stdout
    lines = page[page.index("    import json, openai, sys"):].split("\n\n")[0].split("\n")
    with open(folder + "/agent.py", "w") as file:
        file.write("".join(line[4:] + "\n" for line in lines))
    model = scripted_model(folder + "/model", tokenizer, [("sure", "It is 4, I am sure.")], "It is 5, or so.")
    samples = train(temper, folder, model, folder + "/agent.py", [{"prompt": "2 + 2?"}], {})
    check("an agent around OpenAI's client", all(
        s["turns"] == 4 and s.get("fork", 0) == 0 and s["reward"] == 1.0 for s in samples) and len(samples) == 2)
finish()
