import ast

from tokenizers import Tokenizer

from agent_runtime.decoding.lexer import join, lex
from agent_runtime.training.tokenizer import SPECIAL_TOKENS, load_tokenizer, save_tokenizer


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_no_token_spans_two_lexemes(tokenizer, encode, sources):
    for source in sources:
        apart = [token for lexeme in lex(source) for token in encode(lexeme.whole)]
        assert apart == ids(tokenizer, source)


def test_any_utf8_text_comes_back(tokenizer):
    text = "def f(x):\n\treturn 'naïve ∑ 🙂'  # \x00\r\n\n    y = 10  "
    assert tokenizer.decode(ids(tokenizer, text), skip_special_tokens=False) == text


def test_digits_are_single(tokenizer):
    assert len(ids(tokenizer, "1234")) == 4


def test_special_tokens_are_one_token_from_id_0(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path)
    again: Tokenizer = load_tokenizer(tmp_path)
    for number, name in enumerate(SPECIAL_TOKENS):
        assert ids(again, f"a{name}b")[1] == number == again.token_to_id(name)


def test_random_functions_parse_and_lex_to_themselves(sources):
    for source in sources:
        ast.parse(source)
        assert join(lex(source)) == source
