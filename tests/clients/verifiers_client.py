"""The README's agent around a verifiers environment, as the program of a run whose policy follows a script.

usage: verifiers_client.py TEMPER TOKENIZER_DIR
"""
import sys
import tempfile

from support import check, finish, readme_program, scripted_model, train

temper, tokenizer = sys.argv[1:3]
ENVIRONMENT = '''
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.strip() == self.data.answer)


def task(record):
    return SumTask(SumData(prompt=record["prompt"], answer=record["answer"]), vf.TaskConfig())
'''
with tempfile.TemporaryDirectory() as folder:
    model = scripted_model(folder + "/model", tokenizer, [], "It is 4.")
    with open(folder + "/sums_env.py", "w") as file:
        file.write(ENVIRONMENT)
    lines = [{"prompt": "2 + 2?", "answer": "It is 4."}, {"prompt": "2 + 3?", "answer": "It is 5."}]
    samples = train(temper, folder, model, readme_program(folder, "verifiers_agent.py"), lines, {"PYTHONPATH": folder})
    rewards = {sample["prompt"].split("user\n")[1][:6]: sample["reward"] for sample in samples}
    check("a verifiers environment gives rewards", rewards == {"2 + 2?": 1.0, "2 + 3?": 0.0})
finish()
