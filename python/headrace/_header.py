"""headrace.h as ctypes: its structs, enumerations and functions, read from the header's own text.

The header that lies beside this file is the one that the library was built with, so there is no
second description of its structs to fall behind. It is C11 of a plain kind: declarations of named
structs, one enumeration constant a line, HEADRACE_API before each function.
"""
import ctypes
import re

SCALARS = {"int": ctypes.c_int, "size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32,
           "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
           "double": ctypes.c_double, "float": ctypes.c_float, "char": ctypes.c_char}


def uncommented(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"^#.*$", "", text, flags=re.M)


class Header:
    """`structs` and `constants` by name; declare() gives a loaded library's functions their types."""

    def __init__(self, text):
        self.text = uncommented(text)
        self.types, self.structs, self.constants = dict(SCALARS), {}, {}
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", self.text, re.S):
            self._add_enum(body, name)
        for name in re.findall(r"typedef [^;{]*?\(\*(\w+)\)\([^;]*\);", self.text):
            self.types[name] = ctypes.c_void_p  # an address of a function
        for name in re.findall(r"typedef struct (\w+) (?:\{|\1;)", self.text):
            self.types[name] = self.structs[name] = type(name, (ctypes.Structure,), {})
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", self.text, re.S):
            self.structs[name]._fields_ = list(self._fields(body))

    def _add_enum(self, body, name):
        value = -1
        for constant, given in re.findall(r"(\w+)(?: = (\d+))?", body):
            value = int(given) if given else value + 1
            self.constants[constant] = value
        self.types[name] = ctypes.c_int

    def _fields(self, body):
        body = re.sub(r"\w[\w *]*\(\*(\w+)\)\([^;]*?\);", r"void *\1;", body)  # functions are addresses
        names = set(re.findall(r"\w+", body))
        for base, declarators in re.findall(r"(?:const )?(\w+) ([^;]+);", body):
            for declarator in declarators.split(","):
                stars = declarator.count("*")
                name, length = re.search(r"(\w+)(?:\[(\d+)\])?\s*$", declarator).groups()
                # bytes with a length of their own may hold NUL, and are not C strings
                counted = {f"{name}_bytes", f"n_{name}"} & names
                kind = self._type(base, stars, bool(counted))
                yield name, kind * int(length) if length else kind

    def _type(self, base, stars, counted=False):
        if base == "char" and stars:
            if stars == 1:
                return ctypes.c_void_p if counted else ctypes.c_char_p
            return ctypes.POINTER(ctypes.c_char_p)
        if base == "void" or (stars and base not in self.types):
            return ctypes.c_void_p if stars else None
        kind = self.types[base]
        for _ in range(stars):
            kind = ctypes.POINTER(kind)
        return kind

    def declare(self, library):
        for before, name, arguments in re.findall(
                r"^HEADRACE_API ([^;(]*?)(headrace_\w+)\(([^;]*)\);", self.text, re.M):
            function = getattr(library, name)
            function.restype = self._of(before)
            if name == "headrace_manifest":
                function.restype = ctypes.c_void_p  # to be freed
            function.argtypes = [self._of(re.sub(r"\w+(\[\d+\])?$", r"\1", a.strip()))
                                 for a in arguments.split(",") if a.strip() != "void"]
        return library

    def _of(self, declaration):
        base, = re.findall(r"\w+", declaration.replace("const", ""))[:1]
        stars = declaration.count("*") + (1 if re.search(r"\[\d+\]", declaration) else 0)
        return self._type(base, stars)
