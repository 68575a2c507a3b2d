"""String formats as patterns that admit valid values only, though not always all of them.

Sources: RFC 3339 (dates and times), RFC 9562 (uuid), RFC 2673 and 4291 (addresses), RFC 5321 (email),
RFC 3986 (uri), RFC 1123 (hostname), RFC 6901 (json-pointer).
"""

from __future__ import annotations

_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
"""The two-digit numbers that four divides, but for 00."""
_LEAP_YEAR = f"(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LONG = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = f"(?:{_YEAR}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_HOUR, _SIXTY = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_TIME = rf"{_HOUR}:{_SIXTY}:{_SIXTY}(?:\.[0-9]{{1,6}})?(?:Z|[+-]{_HOUR}:{_SIXTY})"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [f"(?:{_GROUP}:){{7}}{_GROUP}", "::", f"::{_GROUP}(?::{_GROUP}){{0,6}}"]
    + [f"{_GROUP}(?::{_GROUP}){{{n - 1}}}::(?:{_GROUP}(?::{_GROUP}){{0,{6 - n}}})?" for n in range(1, 7)]
    + [f"{_GROUP}(?::{_GROUP}){{6}}::"]
)
_PLAIN_LABEL = "[A-Za-z0-9]{1,30}"
_HOST = rf"{_PLAIN_LABEL}(?:\.{_PLAIN_LABEL}){{0,3}}\.[A-Za-z]{{2,10}}"
_UNRESERVED = "(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})"
_URI = rf"(?:https?|ftp)://{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/{_UNRESERVED}*)*(?:\?{_UNRESERVED}+)?(?:#{_UNRESERVED}+)?"

#: Format name → pattern of the whole string.
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "email": rf"[A-Za-z0-9_+-]{{1,20}}(?:\.[A-Za-z0-9_+-]{{1,20}}){{0,2}}@{_HOST}",
    "uri": _URI,
    "uri-reference": _URI,
    "iri": _URI,
    "iri-reference": _URI,
    "hostname": _HOST,
    "json-pointer": "(?:/(?:[^/~]|~[01])*)*",
}
#: Formats of the standard that are not expressed; any other name is an annotation.
UNSUPPORTED_FORMATS = frozenset(
    {"duration", "idn-email", "idn-hostname", "regex", "relative-json-pointer", "uri-template"}
)
