#!/usr/bin/env python3
"""Golden files of the tokenizer tests, made with Hugging Face `tokenizers`.

  golden_tokenizer.py golden --shared SHARED --out tests/golden/tokenizer
      small golden files and the synthetic tokenizers that belong to them (committed)
  golden_tokenizer.py corpus --shared SHARED --out DIR [--strings 20000]
      big corpora, compared by `build/.../tests/data/tokenizer_test --corpus=DIR` (not committed)

SHARED holds tokenizers/<name>/tokenizer.json[.gz] and gsm8k/*.jsonl. One case is one JSON line:
  t text, i its ids, a ids with special tokens added (if other), d decoded text (if other than t),
  s decoded without special tokens (if other than d). Lines without t only decode.
"""
import argparse
import gzip
import json
import pathlib
import random
import shutil

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

BLOCKS = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF),
          (0x400, 0x52F), (0x530, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x780, 0x7FF), (0x8A0, 0x8FF),
          (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF),
          (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x17FF), (0x1800, 0x18AF), (0x1AB0, 0x1AFF),
          (0x1D00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20FF), (0x2100, 0x23FF), (0x2460, 0x27BF),
          (0x2800, 0x2BFF), (0x2E00, 0x2FFF), (0x3000, 0x30FF), (0x3100, 0x33FF), (0x3400, 0x4DBF),
          (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA640, 0xA8FF), (0xAC00, 0xD7FB), (0xE000, 0xE0FF),
          (0xF900, 0xFAFF), (0xFB00, 0xFE0F), (0xFE20, 0xFFFD), (0x10000, 0x107FF), (0x10800, 0x10FFF),
          (0x11000, 0x11FFF), (0x12000, 0x13FFF), (0x16800, 0x16FFF), (0x1B000, 0x1BCFF), (0x1D000, 0x1D7FF),
          (0x1E000, 0x1E9FF), (0x1F000, 0x1FAFF), (0x20000, 0x2FA1F), (0x30000, 0x323AF), (0xE0000, 0xE01EF)]
SPACES = [' ', ' ', ' ', '\n', '\n', '\t', '\r', '\r\n', '\x0b', '\x0c', '\x1c', '\x85', '\xa0', '\u1680',
          '\u180e',
          '\u2000', '\u2003', '\u200a', '\u200b', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '\ufeff']
EMOJI = ['\U0001F468\u200d\U0001F469\u200d\U0001F467', '\U0001F44D\U0001F3FD', '\u2764\ufe0f',
         '\U0001F1E9\U0001F1EA',
         '1\ufe0f\u20e3', '\U0001F3F4\U000E0067\U000E0062\U000E007F', '\U0001FAE0', '\u263a']
DIGITS = ['0123456789', '\u0660\u0661\u0669', '\u0966\u096f', '\uff10\uff19', '\u2160\u216b', '\xb2\xb3\xbd',
          '\U0001D7D8\U0001D7E1', '\u3007\u3021', '\u2460\u246a', '\U00011F50', '\U0001E4F1']
WORDS = ['the', 'Hello', ' world', "don't", "I'LL", "we'Re", "it'\u017f", "'s", "'VE", ' return',
         'def f(x):', 'Ünïcödé',
         '你好，世界', 'こんにちは', 'カタカナー', '안녕하세요', 'Привет', 'مرحبا', 'שלום', 'नमस्ते', 'ไทย', 'e\u0301',
         'a\u0323\u0302',
         '\u1112\u1161\u11ab', '\u212b', '\ufb01', 'ǅ', 'https://a.b/c?d=e&f#g', '<<48/2=24>>', '#### 72',
         '$1,234.56', '```c++\n',
         '    if (x) {', '}\n\n', '...', '!!!', '::', '->', '\\n', '\\frac{1}{2}', '<0x0A>', '\u2581',
         '\u2581\u2581x', '\u0120']
EDGE = ['', ' ', '  ', '\n', '\r\n', ' \n', '\n ', '\t\t', 'a', ' a', 'a ', '  a', 'a  b', 'a\n\nb',
        '   \n  x', '1234567', ' 1', 'a 12',
        "I'm I'M I'\u017f", "'s's", '!!!', 'a!\n\n', '\u0000', 'x\u0000y', '\ufeffx', '\u180e',
        ' \u180e a', '\u200b\u200b', '\U0010FFFF',
        '\ue000', 'e\u0301', '\u0301', '\u0301\u0323a', '\u1100\u1161\u11a8', '\uac00\u11a8',
        '\U00011935\U00011930', 'a\u0898\u0334',
        '\U000105D2\u0307', '\u2126\u212b', '\u0344', '\u0958', '\ufb1d', '一二三', '龥龦', '〜ー',
        '\U0002EBF0\U00031350', '\u1c89\u1c8a',
        '\U0001F468\u200d\U0001F469\u200d\U0001F467', 'a\u00a0b', '\u3000全角', '½²³', 'Ⅷ', '٣٤٥٦', 'ﷺ',
        '<|im_start|>user\nhi<|im_end|>\n',
        '<|im_start|', '<|endoftext|><|endoftext|>', '<think>\n\n</think>',
        '<tool_call>{"a": 1}</tool_call>', '<|im_end|>s', 'x<|im_end|>y',
        '<｜begin▁of▁sentence｜>a<｜User｜>b<｜Assistant｜>', '<｜fim▁hole｜>', '<|EOT|>',
        '<|begin_of_text|><|eot_id|>', '<s>a</s>', '<unk>',
        'a' * 33, ' ' * 33, '\n' * 20, '!' * 33, '\u00e9' * 9, '1' * 20, 'ab' * 9, ' a' * 9]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
# Qwen2 and 3 know no marks: \p{L} is in the place of [\p{L}\p{M}], and \p{M} is nowhere else.
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARKS = ['नमस्ते', 'दुनिया', 'हिन्दी', ' ภาษาไทย', 'สวัสดี', 'ที่นี่', 'கற்றல்', ' தமிழ்', 'শিক্ষা', 'עִבְרִית', ' שָׁלוֹם', 'الْعَرَبِيَّة', ' مُحَمَّد', 'q\u0307',
         'x\u0301y\u0323', ' \u0301a', '\u0e31\u0e49', '!\u0301', '1\u0302', ' \u20e3', '\u0903क', "it's", 'e\u0301t', 'ខ្មែរ', 'မြန်မာ', 'བོད་ཡིག']


def piece(rng, specials):
    kind = rng.randrange(12)
    if kind <= 1:
        return rng.choice(WORDS)
    if kind == 2:
        return ''.join(rng.choice(SPACES) for _ in range(rng.randint(1, 6)))
    if kind == 3:
        return rng.choice([' ', '\n', '\r\n', '\t']) * rng.randint(1, 12)
    if kind == 4:
        return ''.join(rng.choice(rng.choice(DIGITS)) for _ in range(rng.randint(1, 9)))
    if kind == 5:
        return rng.choice(EMOJI)
    if kind == 6 and specials:
        token = rng.choice(specials)
        return token if rng.random() < 0.8 else token[:rng.randint(1, len(token))]
    if kind == 7:  # anything at all
        code = rng.randrange(0x110000)
        return chr(code) if not 0xD800 <= code < 0xE000 else '\ufffd'
    if kind == 8:
        return ''.join(rng.choice('!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~') for _ in range(rng.randint(1, 5)))
    low, high = rng.choice(BLOCKS)
    text = ''.join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8)))
    return ' ' + text if kind == 9 else text


def fuzz(seed, count, specials):
    rng = random.Random(seed)
    return [''.join(piece(rng, specials) for _ in range(rng.randint(1, 10))) for _ in range(count)]


def read_tokenizer(folder):
    plain = folder / 'tokenizer.json'
    if plain.exists():
        return plain.read_text('utf-8')
    return gzip.decompress((folder / 'tokenizer.json.gz').read_bytes()).decode('utf-8')


def special_strings(text):
    return [token['content'] for token in json.loads(text)['added_tokens']]


def case(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    row = {'t': text, 'i': ids}
    with_special = tokenizer.encode(text, add_special_tokens=True).ids
    if with_special != ids:
        row['a'] = with_special
    return decoded(tokenizer, row, text)


def decoded(tokenizer, row, text=None):
    whole = tokenizer.decode(row['i'], skip_special_tokens=False)
    bare = tokenizer.decode(row['i'], skip_special_tokens=True)
    if whole != text:
        row['d'] = whole
    if bare != whole:
        row['s'] = bare
    return row


def decode_cases(tokenizer, seed, count):
    """Random id lists: mostly broken UTF-8."""
    rng = random.Random(seed)
    known = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    single = [i for i in known if len(tokenizer.id_to_token(i)) == 1] or known
    return [decoded(tokenizer, {'i': [rng.choice(single if rng.random() < 0.5 else known)
                                      for _ in range(rng.randint(1, 8))]}) for _ in range(count)]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'w', encoding='utf-8') as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, separators=(',', ':')) + '\n')


def added(index, content, **flags):
    row = {'id': index, 'content': content, 'single_word': False, 'lstrip': False, 'rstrip': False,
           'normalized': False,
           'special': True}
    return {**row, **flags}


def training_text(shared):
    rows = [json.loads(line) for line in open(shared / 'gsm8k' / 'test.jsonl', encoding='utf-8')][:150]
    return [row['question'] + '\n' + row['answer'] for row in rows]


def train_byte_level(shared, size):
    """Byte-level BPE in the manner of Llama 3, with words that no merge reaches and a BOS template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=size,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    tokenizer.train_from_iterator(training_text(shared), trainer)
    tree = json.loads(tokenizer.to_str())
    vocab = tree['model']['vocab']
    for word in ['Ġunreachable', 'zzzz', 'Ġ\u00e4\u00b8\u0143']:
        vocab[word] = len(vocab)
    tree['model']['ignore_merges'] = True
    base = len(vocab)
    names = ['<|begin_of_text|>', '<|end_of_text|>', '<|start_header_id|>', '<|end_header_id|>', '<|eot_id|>']
    tree['added_tokens'] = [added(base + i, name) for i, name in enumerate(names)]
    tree['post_processor'] = {'type': 'Sequence', 'processors': [
        {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': False, 'use_regex': True},
        {'type': 'TemplateProcessing',
         'single': [{'SpecialToken': {'id': names[0], 'type_id': 0}},
                    {'Sequence': {'id': 'A', 'type_id': 0}}],
         'pair': [{'Sequence': {'id': 'A', 'type_id': 0}}, {'Sequence': {'id': 'B', 'type_id': 1}}],
         'special_tokens': {names[0]: {'id': names[0], 'ids': [base], 'tokens': [names[0]]}}}]}
    tree['decoder'] = {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': True, 'use_regex': True}
    return tree


def train_marks(size):
    """Byte-level BPE in the manner of Qwen3.5, of words whose letters have marks."""
    rng = random.Random(7)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN35), 'isolated'), cut])
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    tokenizer.train_from_iterator([''.join(rng.choice(MARKS) for _ in range(6)) for _ in range(300)], trainer)
    tree = json.loads(tokenizer.to_str())
    names = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|vision_start|>', '<|image_pad|>']
    tree['added_tokens'] = [added(size + i, name) for i, name in enumerate(names)]
    tree['decoder'] = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': False, 'use_regex': False}
    return tree


def make_marks(out):
    tree = train_marks(600)
    write_tree(out / 'qwen3.5', tree, '<|im_end|>')
    tokenizer = Tokenizer.from_str(json.dumps(tree))
    older = Tokenizer.from_str(json.dumps(tree).replace('[\\\\p{L}\\\\p{M}]', '\\\\p{L}').replace('\\\\p{M}', ''))
    rng = random.Random(8)
    texts = EDGE + MARKS + [''.join(rng.choice([*MARKS, ' ', '\n', '12', '!?']) for _ in range(rng.randint(2, 5)))
                            for _ in range(60)] + [t for t in fuzz(9, 60, special_strings(json.dumps(tree))) if len(t) <= 25]
    others = sum(tokenizer.encode(t).ids != older.encode(t).ids for t in texts)
    assert others >= 30, others
    write_rows(out / 'qwen3.5.jsonl', [case(tokenizer, t) for t in texts] + decode_cases(tokenizer, 2, 20))
    print(f'qwen3.5: {others} of {len(texts)} texts have other ids with the pattern of Qwen3')


def train_sentencepiece(shared, size):
    """BPE with byte fallback in the manner of Llama 2."""
    tokenizer = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    bytes_tokens = [f'<0x{i:02X}>' for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=['<unk>', '<s>', '</s>'] + bytes_tokens,
                                  show_progress=False,
                                  max_token_length=12)
    words = ' '.join(training_text(shared)).replace(' ', ' \u2581').split(' ')
    tokenizer.train_from_iterator(words, trainer)
    tree = json.loads(tokenizer.to_str())
    tree['added_tokens'] = [added(i, name) for i, name in enumerate(['<unk>', '<s>', '</s>'])]
    tree['normalizer'] = {'type': 'Sequence', 'normalizers': [
        {'type': 'Prepend', 'prepend': '\u2581'},
        {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\u2581'}]}
    tree['pre_tokenizer'] = None
    tree['post_processor'] = {'type': 'TemplateProcessing',
                              'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}},
                                         {'Sequence': {'id': 'A', 'type_id': 0}},
                                         {'SpecialToken': {'id': '</s>', 'type_id': 0}}],
                              'pair': [{'Sequence': {'id': 'A', 'type_id': 0}}],
                              'special_tokens': {'<s>': {'id': '<s>', 'ids': [1], 'tokens': ['<s>']},
                                                 '</s>': {'id': '</s>', 'ids': [2], 'tokens': ['</s>']}}}
    tree['decoder'] = {'type': 'Sequence', 'decoders': [
        {'type': 'Replace', 'pattern': {'String': '\u2581'}, 'content': ' '}, {'type': 'ByteFallback'},
        {'type': 'Fuse'},
        {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}]}
    return tree


def split(pattern, behavior, invert=False):
    return {'type': 'Split', 'pattern': pattern, 'behavior': behavior, 'invert': invert}


def sequence(*items):
    last = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
    return {'type': 'Sequence', 'pretokenizers': list(items) + [last]}


def byte_level_variants(tree):
    """Settings that the real tokenizers here do not use, as patches of the byte-level tokenizer."""
    base = tree['added_tokens'][0]['id']
    flags = [added(base, '<|begin_of_text|>'),
             added(base + 1, '<l>', lstrip=True),
             added(base + 2, '<r>', rstrip=True),
             added(base + 3, 'word', single_word=True, special=False),
             added(base + 4, '<b>', lstrip=True, rstrip=True),
             added(base + 5, 'caf\u00e9', normalized=True, special=False),
             added(base + 6, '<l><r>'),
             added(base + 7, '\u212b', special=False),
             added(base + 8, 'n\u0303', normalized=True, special=False)]
    rows = [('gpt2 default', {'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False,
                                                'trim_offsets': True}}),
            ('prefix space', {'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': True,
                                                'trim_offsets': True, 'use_regex': True}}),
            ('added flags', {'normalizer': {'type': 'NFC'}, 'added_tokens': flags, 'post_processor': None}),
            ('digits', {'pre_tokenizer': sequence({'type': 'Digits', 'individual_digits': False})}),
            ('single digits', {'pre_tokenizer': sequence({'type': 'Digits', 'individual_digits': True})}),
            ('no decoder', {'decoder': None}), ('no ignore_merges', {'model': {'ignore_merges': False}}),
            ('replace', {'normalizer': {'type': 'Replace', 'pattern': {'String': 'a'}, 'content': 'bb'}})]
    for behavior in ['Isolated', 'Removed', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']:
        cuts = [('string', split({'String': ' '}, behavior)), ('regex', split({'Regex': r'\s'}, behavior)),
                ('inverted', split({'Regex': r'\p{L}+'}, behavior, True))]
        rows += [(f'{name} {behavior}', {'pre_tokenizer': sequence(cut)}) for name, cut in cuts]
    rows.append(('empty matches', {'pre_tokenizer': sequence(split({'Regex': r'\d*'}, 'Isolated'))}))
    rows.append(('lines', {'pre_tokenizer': sequence(split({'Regex': r'^.*$'}, 'Isolated'))}))
    han = [r'\p{Han}+', r'[\p{Lu}\p{Lt}]?[^\p{Lu}\p{Han}\s\S]*', r'[\u3040-\u309f]+|\P{^L}',
           r'(?<=a)b|(?<!a)c|(?>\r\n|\r)|x{2,3}']
    for i, pattern in enumerate(han):
        rows.append((f'classes {i}', {'pre_tokenizer': sequence(split({'Regex': pattern}, 'Isolated'))}))
    return rows


def sentencepiece_variants(_tree):
    rows = []
    for scheme in ['always', 'first', 'never']:
        for cut in [True, False]:
            meta = {'type': 'Metaspace', 'replacement': '\u2581', 'prepend_scheme': scheme, 'split': cut}
            rows.append((f'metaspace {scheme} {cut}', {'normalizer': None, 'pre_tokenizer': meta,
                                                       'decoder': meta}))
    old = [added(i, name, normalized=True, special=False) for i, name in enumerate(['<unk>', '<s>', '</s>'])]
    rows.append(('normalized specials', {'added_tokens': old}))
    rows.append(('unk not fused', {'model': {'byte_fallback': False, 'fuse_unk': False}}))
    rows.append(('unk fused', {'model': {'byte_fallback': False}}))
    return rows


def patched(tree, patch):
    tree = json.loads(json.dumps(tree))
    for key, value in patch.items():
        if key == 'model':
            tree['model'].update(value)
        else:
            tree[key] = value
    return tree


def write_variants(path, tree, variants, seed, count, longest):
    """`count` fuzzed texts of at most `longest` characters per variant, and one made of the added tokens."""
    rows = []
    for name, patch in variants:
        text = json.dumps(patched(tree, patch))
        tokenizer = Tokenizer.from_str(text)
        specials = special_strings(text) if 'added_tokens' in patch else special_strings(text)[:2]
        texts = ['a' + '  '.join(specials) + ' b' + '1'.join(specials) + 'c'.join(specials),
                 ' I\'m  a 1234b\n\n5 !c \r\n']
        texts += [t for t in fuzz(seed, 20 * count, specials) if len(t) <= longest][:count]
        rows.append({'name': name, 'patch': patch, 'cases': [case(tokenizer, t) for t in texts]})
    write_rows(path, rows)


def write_tree(folder, tree, eos):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'tokenizer.json').write_text(json.dumps(tree, ensure_ascii=False, separators=(',', ':')),
                                           'utf-8')
    (folder / 'tokenizer_config.json').write_text(json.dumps({'eos_token': eos, 'pad_token': None}) + '\n',
                                                  'utf-8')


def make_golden(shared, out):
    folder = out / 'minimind'
    folder.mkdir(parents=True, exist_ok=True)
    for name in ['tokenizer.json', 'tokenizer_config.json']:
        shutil.copyfile(shared / 'tokenizers' / 'minimind' / name, folder / name)
    llama3 = train_byte_level(shared, 700)
    write_tree(out / 'llama3', llama3, {'content': '<|eot_id|>', 'lstrip': False})
    write_variants(out / 'llama3' / 'variants.jsonl', llama3, byte_level_variants(llama3), 11, 2, 14)
    make_marks(out)
    llama2 = train_sentencepiece(shared, 800)
    write_tree(out / 'llama2', llama2, '</s>')
    write_variants(out / 'llama2' / 'variants.jsonl', llama2, sentencepiece_variants(llama2), 12, 3, 20)
    for name in ['minimind', 'llama3', 'llama2', 'qwen2.5', 'qwen3', 'deepseek-v3']:
        source = out / name if (out / name / 'tokenizer.json').exists() else shared / 'tokenizers' / name
        text = read_tokenizer(source)
        tokenizer = Tokenizer.from_str(text)
        texts = EDGE + [t for t in fuzz(1, 100, special_strings(text)) if len(t) <= 25]
        rows = [case(tokenizer, t) for t in texts] + decode_cases(tokenizer, 2, 20)
        write_rows(out / f'{name}.jsonl', rows)


def make_corpus(shared, out, count):
    lines = []
    for path in sorted((shared / 'gsm8k').glob('*.jsonl')) + sorted((shared / 'math').glob('*.jsonl')):
        for line in open(path, encoding='utf-8'):
            lines += [value for value in json.loads(line).values() if isinstance(value, str)]
    names = [folder.name for folder in sorted((shared / 'tokenizers').iterdir()) if folder.is_dir()]
    golden = pathlib.Path(__file__).resolve().parent.parent / 'tests' / 'golden' / 'tokenizer'
    sources = [(name, shared / 'tokenizers' / name) for name in names]
    sources += [(name, golden / name) for name in ['llama3', 'llama2']]
    for name, source in sources:
        text = read_tokenizer(source)
        (out / name).mkdir(parents=True, exist_ok=True)
        (out / name / 'tokenizer.json').write_text(text, 'utf-8')
        tokenizer = Tokenizer.from_str(text)
        texts = EDGE + fuzz(3, count, special_strings(text)) + lines
        rows = [case(tokenizer, t) for t in texts] + decode_cases(tokenizer, 4, count // 10)
        write_rows(out / f'{name}.jsonl', rows)
        print(f'{name}: {len(texts)} texts', flush=True)
    for name, variants in [('llama3', byte_level_variants), ('llama2', sentencepiece_variants)]:
        tree = json.loads(read_tokenizer(golden / name))
        (out / name).mkdir(parents=True, exist_ok=True)
        write_variants(out / name / 'variants.jsonl', tree, variants(tree), 5, count // 20, 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('mode', choices=['golden', 'corpus'])
    parser.add_argument('--shared', type=pathlib.Path, required=True)
    parser.add_argument('--out', type=pathlib.Path, required=True)
    parser.add_argument('--strings', type=int, default=20000)
    args = parser.parse_args()
    if args.mode == 'golden':
        make_golden(args.shared, args.out)
    else:
        make_corpus(args.shared, args.out, args.strings)


if __name__ == '__main__':
    main()
