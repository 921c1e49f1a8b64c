"""The leak scan: whether anything that tells who, where or when is in a finished release."""
