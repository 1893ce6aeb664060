"""Twenty questions in small, over pipes: which of twelve letters is it? The policy has four guesses, and hears after
each whether the letter comes before it (<) or after it (>).

python3 twenty_questions.py                a service, for rollout.harness; --shuffled: it answers of other letters
python3 twenty_questions.py data FOLDER    games of a careless player for SFT (games.jsonl), and the letters (letters.jsonl)
"""
import json
import os
import random
import sys

LETTERS, GUESSES = "abcdefghijkl", 4


def answer(secret, guess):
    return "<" if secret < guess else ">"


def play(shuffled):
    games = {}
    for line in sys.stdin:
        told = json.loads(line)
        id = told["id"]
        if "start" in told:
            start = told["start"]
            games[id] = {"secret": start["record"]["answer"], "left": GUESSES, "random": random.Random(start["seed"])}
            reply = {"observation": "guess"}
        elif "stop" in told:
            games.pop(id, None)
            continue
        else:
            game, guess = games[id], told["text"].strip()
            game["left"] -= 1
            if guess == game["secret"] or game["left"] == 0:
                reply = {"reward": float(guess == game["secret"]), "done": True}
                del games[id]
            else:
                reply = {"observation": answer(game["random"].choice(LETTERS) if shuffled else game["secret"], guess)}
        print(json.dumps({"id": id, **reply}), flush=True)


def game(rng):
    """One time in three the player forgets what he has heard."""
    secret, known, messages = rng.choice(LETTERS), LETTERS, [{"role": "user", "content": "guess"}]
    for _ in range(GUESSES):
        guess = rng.choice(rng.choice([known, known, LETTERS]))
        messages.append({"role": "assistant", "content": guess})
        if guess == secret:
            break
        heard = answer(secret, guess)
        known = [x for x in known if (x < guess if heard == "<" else x > guess)]
        messages.append({"role": "user", "content": heard})
    return messages[:-1] if messages[-1]["role"] == "user" else messages


def write_data(folder):
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(1)
    with open(os.path.join(folder, "games.jsonl"), "w") as file:
        for _ in range(20000):
            file.write(json.dumps({"messages": game(rng)}) + "\n")
    with open(os.path.join(folder, "letters.jsonl"), "w") as file:
        for letter in LETTERS:
            file.write(json.dumps({"prompt": "guess", "answer": letter}) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["data"]:
        write_data(sys.argv[2])
    else:
        play("--shuffled" in sys.argv)
