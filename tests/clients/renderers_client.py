"""renderers' generate: messages rendered here, ids in, ids and log-probs out.

usage: renderers_client.py TEMPER TOKENIZER_DIR
"""
import asyncio
import subprocess
import sys
import tempfile

import openai
from renderers import create_renderer
from renderers.client import OverlongPromptError, generate
from transformers import AutoTokenizer

from support import call, check, finish, scripted_model, server

temper, tokenizer_dir = sys.argv[1:3]


async def main():
    with tempfile.TemporaryDirectory() as folder:
        model = scripted_model(folder + "/model", tokenizer_dir, [], "Four.")
        tokenizer = AutoTokenizer.from_pretrained(model)
        renderer = create_renderer(tokenizer)
        with server(temper, model) as url:
            client = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
            asked = dict(client=client, renderer=renderer, model="model",
                         messages=[{"role": "user", "content": "Two and two?"}])
            said = await generate(**asked, sampling_params={"max_tokens": 8, "temperature": 1.0, "top_p": 1.0})
            check("renderers' generate", said["content"] == "Four." and said["finish_reason"] == "stop")
            check("it has a log-prob for each id", len(said["completion_ids"]) == len(said["completion_logprobs"]) == 2)
            try:
                await generate(**{**asked, "messages": [{"role": "user", "content": "word " * 200000}]})
                check("it knows the length of the context", False)
            except OverlongPromptError:
                check("it knows the length of the context", True)


asyncio.run(main())
finish()
