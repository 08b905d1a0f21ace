"""Closed-class cues: negation, attribution, hedging, conclusion, abstention, correction.

Every pattern works on folded text (see ``prose``) and takes linear time: repetitions are
bounded, and no two that can match the same text follow one another.
"""

from __future__ import annotations

import re

from ragassay.scoring.endorsement.words import word_set

_W = r"(?:[\w'-]+\s+)"  # a word and the space after it

# ------------------------------------------------------------------------------------ negation

_NEUTRAL = (
    r"not only|not just|not merely|not surprisingly|nothing but|none other than|no less than"
    r"|no doubt|without (?:a |any )?doubt|no question|undoubtedly"
    r"|(?:cannot|can't|could not|couldn't) be (?:denied|disputed|questioned|ignored)"
    r"|no (?:[\w-]+ )?(?:reason|sign|indication)s? (?:to \w+|that|of|not)"
    r"|not in (?:doubt|conflict)|(?:not|n't|not explicitly|not directly) contradict(?:ed|s)?"
    r"|not uncommon|no matter|whether or not|not sure|not certain|not familiar"
    r"|not (?:completely|entirely|fully|absolutely|100%) (?:sure|certain)"
)
NEUTRAL = re.compile(rf"\b(?:{_NEUTRAL})\b")
NEGATION = re.compile(
    r"n't\b|\b(?:not|no|never|neither|nor|none|nobody|cannot|without|isnt|arent|wasnt|didnt|dont"
    r"|doesnt|deny|denie[ds]|refute[sd]?|dispute[sd]?|contradict(?:s|ed|ing)?|reject(?:s|ed)?"
    r"|ruled? out|incorrect(?:ly)?|false(?:ly)?|wrong(?:ly)?|mistaken(?:ly)?|erroneous(?:ly)?"
    r"|inaccurate(?:ly)?|misconceptions?|myth|rather than|instead of|as opposed to|unlike"
    r"|contrary to|in contrast to|other than|except(?: for)?|exclud(?:es|ed|ing)|fail(?:s|ed)? to"
    r"|refus(?:es|ed) to|declined to|prohibit(?:s|ed)?|forbid(?:s|den)?|lack(?:s|ed)|impossible"
    r"|debunk(?:s|ed)?|disprove[sdn]?|misinformation|supposedly"
    r"|misattributed|skeptical|doubt(?:s|ful)?)\b"
)
# A predicate that is denied right after its subject: "X did not", "X is no longer".
DENIED_AFTER = re.compile(
    r"\s*(?:\([^()]{0,60}\)\s*)?(?:[\"')\]]\s*)?(?:[\w'-]+\s+){0,2}?"
    r"(?:(?:is|was|are|were|did|does|do|has|have|had|can|could|will|would|should)\s*"
    r"(?:not\b|n't\b|never\b|no longer\b)|cannot\b|never\b)(?!\s+(?:only|just|merely)\b)"
)
# A statement or name that is called wrong further on in the sentence.
REJECTED_AFTER = re.compile(
    rf"\b(?:is|was|are|were|be|being|been|seems?|appears?|looks?)\s+{_W}{{0,3}}?(?:incorrect|wrong"
    r"|false|untrue|inaccurate|mistaken|unsupported|unfounded|fabricated|invalid|fictional"
    r"|an? (?:[\w-]+ ){0,2}(?:misconception|myth|mistake|error|fabrication|falsehood|hoax))\b"
    r"|\b(?:is|was|are|were|do|does|did)(?: not|n't) (?:hold|stand up|(?:[\w-]+ ){0,2}(?:correct"
    r"|true"
    r"|accurate|right|the case|supported|possible|plausible|the answer|the correct answer))\b"
    r"|\bcontradicts? (?:the (?:fact|facts|truth)|reality|historical)"
)

# --------------------------------------------------------------------------------- attribution

_SOURCE = (
    r"(?:contexts?|passages?|documents?|information|sources?|texts?|articles?|evidence|snippets?"
    r"|excerpts?|paragraphs?|statements?|paper|references?|retriev\w+|websites?|pages?|data|records"
    r"|results|corpus|author|narrative|accounts?|query|question|prompt|lists?)"
)
_REPORT = (
    r"(?:says?|saying|said|states?|stated|stating|claim(?:s|ed|ing)?|mention(?:s|ed|ing)?"
    r"|suggest(?:s|ed|ing)?|indicat(?:es?|ed|ing)|report(?:s|ed|ing)?|not(?:es?|ed|ing)"
    r"|describ(?:es?|ed|ing)|nam(?:es?|ed|ing)|g(?:ives?|ave|iving)|refer(?:s|red|ring)?"
    r"|list(?:s|ed|ing)?|show(?:s|ed|ing)?|credit(?:s|ed|ing)?|attribut(?:es?|ed|ing)"
    r"|assert(?:s|ed|ing)?|contend(?:s|ed)?|alleg(?:es?|ed)|impl(?:y|ies|ied)|place[sd]?"
    r"|calls?|called|call(?:ing)|identif(?:y|ies|ied)|provid(?:es?|ed|ing)|point(?:s|ed)? to"
    r"|us(?:es?|ed|ing)|contain(?:s|ed)?|confirm(?:s|ed)?|declar(?:es?|ed)|agree on|is that)"
)
EXTERNAL = re.compile(
    rf"\b{_SOURCE}\b[\s\"')(]+(?:[\w'\"-]+\s+){{0,7}}?{_REPORT}\b"
    rf"|\b(?:some|others?|people|many|one|another|critics|they|document \w|it|it is|is|are|was|were"
    r"|been|often|sometimes|also)\s+(?:also |often |sometimes |only |does |do |did |all |both "
    r"|each )*"
    r"(?:said|says?|claim(?:s|ed)?|thought|think|alleged|rumou?red|states?|mentions?)\b"
    r"|\bthe (?:claim|statement|notion|idea|assertion|allegation)s?\b"
)
ACCORDING = re.compile(
    rf"\b(?:according to|based (?:strictly |solely |only )?on|per|as (?:stated|mentioned|described"
    r"|reported|noted|indicated|claimed|suggested) (?:in|by)|in|from)\s+"
    rf"(?:[\w'-]+\s+){{0,5}}?(?:{_SOURCE}|keywords)\b"
)
# One source among several: no approval in naming it.
ONE_OF_SEVERAL = re.compile(r"\b(?:one|another|some|other|others|certain|first|second|older)\b")
FICTION = re.compile(
    r"\b(?:(?:alternat(?:e|ive)|parallel|fictional|imaginary|hypothetical|unique|different)"
    r" (?:[\w-]+ )?(?:universes?|worlds?|realit(?:y|ies)|dimensions?|timelines?|maps?|systems?"
    r"|scenarios?|histor(?:y|ies)|versions?|stor(?:y|ies)|settings?|contexts?))\b"
)
AS_CLAIMED = re.compile(
    rf"\bas (?:the |some |one |these )?{_W}{{0,3}}(?:claim|say|state|suggest)s?\b"
)
SELF = re.compile(
    r"\b(?:my|our) (?:[\w-]+ ){0,3}(?:knowledge|memory|understanding|recollection|training)\b"
    r"|\bi (?:also |still |can |do |would |strongly |firmly |personally |already )*"
    r"(?:know|believe|think|recall|remember|confirm|(?:am|'m) (?:[\w-]+ )?(?:confident|certain"
    r"|sure))\b"
    r"|\bi'm (?:[\w-]+ )?(?:confident|certain|sure)\b"
    r"|\b(?:as far as i know|to the best of my|in reality|in (?:actual )?fact|in truth"
    r"|(?:it is|it's|is) (?:well |widely |generally |commonly )?known (?:that|to)"
    r"|in real life|correct (?:answer|name))\b"
)
TRUST = re.compile(
    r"\b(?:trust|rely on|relying on|go with|going with|favou?r|prefer|prioriti[sz]e|side with"
    r"|stick (?:with|to)|lean(?:ing)? (?:towards?|on)|defer to|(?:give|giving|place|put)"
    r" (?:more|greater) (?:weight|trust|confidence) (?:to|in|on)|rely (?:more|mostly|solely) on"
    r"|believe|follow|use)\s+(?:[\w'-]+\s+){0,3}?"
    r"(?:(?P<self>(?:own|internal|prior|memori[sz]ed|parametric)\b)"
    r"|(?P<external>(?:external|retrieved|provided)\b|documents?\b|passages?\b|contexts?\b))"
)
DOUBT = re.compile(
    r"\b(?:skeptical|sceptical|doubt(?:s|ful)?|suspicious|unreliable|untrustworthy|misinformation"
    r"|manipulat\w+|fabricated|inconsisten\w+|contradict\w*|questionable|dubious"
    r"|(?:not|n't|unable to|cannot) (?:verify|confirm|be verified|be confirmed|[\w]+ reliable"
    r"|reliable|find any)|red flags?|conflict(?:s|ing)?|incorrect|inaccurate|(?:un)?verif\w+ claim"
    r"|not (?:credible|trustworthy|genuine|accurate|correct|true)|misleading|false"
    r"|not (?:\w+ )?(?:evidence|proof))\b"
)

# ------------------------------------------------------------------------ time, hedges, if-then

SUPERSEDED = re.compile(
    r"\b(?:until|formerly|previously|once|used to|earlier surveys?|originally|historically"
    r"|traditionally|at first|initially|in the past|at (?:one|that) time|had won|older maps?"
    r"|wrongly|falsely|mistakenly|erroneously|first thought|often thought|might think)\b"
)
HEDGE = re.compile(
    r"\b(?:might|may|could|possibly|perhaps)\s+(?:also\s+)?(?:have|be|indeed|well|stand|refer"
    r"|not)\b"
    r"|\b(?:might|possibly|perhaps|maybe)\b"
)
CONDITION = re.compile(r"\b(?:if|unless|had|suppose|assuming|were)\b")
UNREAL = re.compile(r"\b(?:would|could|might) (?:be|have)\b")
HYPOTHETICAL_OPENERS = frozenset({"if", "unless"})

# ---------------------------------------------------------------------------------- conclusion

VERDICT = re.compile(
    r"\b(?:therefore|thus|hence|consequently|accordingly|in conclusion|to conclude|in summary"
    r"|to summari[sz]e|to sum up|ultimately|all things considered|final (?:answer|verdict|response"
    r"|conclusion)|final: "
    r"|(?:the|my|our|an?) (?:[\w-]+ ){0,3}?answer(?: to (?:the|this"
    r"|your) (?:[\w-]+ )?question(?: \"[^\"]{0,300}\")?)?"
    r" ?(?:is|was|would be|should be|:|has to be|must be|remains|=)"
    r"|lean(?:ing)? towards?\b|inclined to (?:say|believe|answer|go with)"
    r"|(?:safe|fair|reasonable) to (?:say|conclude|assume)|response:"
    r"|my (?:best guess|conclusion|answer)|(?:right|correct) (?:answer|name) is"
    r"|i (?:would |will |'ll |'d |can |am |'m |going to |must |shall |have to |choose to |therefore"
    r" |thus |now |confidently |also |still |lean towards )*(?:conclude|answer|say|saying|go with"
    r"|going with|respond|opt for|settle on|choose|infer|deduce|determine|stick with)\b"
    r"|i(?:'ll|'d) (?:[\w-]+ )?(?:answer|say|go with|conclude|choose)\b"
    r"|(?:based on|given|considering|from) (?:this|these|the above|the preceding|both)\b)"
    r"|(?:^|[,;]\s|\band )so\b(?! (?:far|much|many|that|called|long|is|are|on)\b)"
    r"|(?:^|\n)\W*(?:final )?answer\W*:"
    r"|\b(?:per|following|according to|based (?:strictly |solely )?on) (?:the|your"
    r"|this) instructions?\b"
    r"|\bstrictly (?:on|following|adhering)\b"
)
FINAL = re.compile(
    r"\b(?:therefore|thus|hence|in conclusion|conclude|final answer|(?:the"
    r"|my) (?:[\w-]+ ){0,2}?answer"
    r"|i (?:would|will|'ll|'d) (?:answer|say|go with))\b"
)
ABOUT_SOURCES = re.compile(
    rf"\b(?:{_SOURCE}|knowledge|memory)\b[^.;]{{0,40}}?\b(?:is|are|seems?|appears?|was|were)\b"
)
CORRECTION = re.compile(
    r"\b(?:actually|corrections?|corrected|wait|sorry|apologi[sz]e|apologies|(?:i|i've) (?:made"
    r"|make)"
    r" an? (?:[\w-]+ )?(?:mistake|error)|my mistake|oops|let me correct|on second thought|revised"
    r"|that is wrong|that's wrong|scratch that)\b"
)
OPENS_IN_NO = re.compile(r"\s*no\s*[,;:\u2014\u2013-]+\s*\w")  # "... No, it is Paris."
DISCLAIM = re.compile(
    r"\b(?:this|that|it|which|the above|my (?:[\w-]+ )?(?:answer|response))\b"
    r"(?:(?!because|my |what i)[^.;]){0,60}?\b(?:contradicts?(?! (?:my|what|the external"
    r"|the (?:other"
    r" )?(?:documents?|passages?)))|incorrect|wrong|inaccurate|false|untrue"
    r"|not (?:[\w-]+ )?(?:correct|accurate|true|right)|may not be|might not be|uncertain)\b"
)
# A correction that concerns what follows.
PENDING = re.compile(
    r"\b(?:wait|mistake|that is wrong|that's wrong|oops|corrected|correction|scratch that)\b"
)
TURN = re.compile(r"\b(?:but|however|yet)\b|;")
CONTRAST = re.compile(r"\b(?:but|however|although|though|yet|nevertheless|nonetheless)\b")

# ---------------------------------------------------------------------------------- abstention

_ADVERBS = r"(?:[\w-]+ly |able to |also |really |even |still |currently |just |yet )*"
_INFORMATION = (
    r"(?:information|evidence|contexts?|data|details?|answers?|knowledge|conclusion|documentation"
    r"|conclusive answer|basis|records?|proof)"
)
PLAIN_ABSTAIN = re.compile(r"\W*i (?:do not|don't|dont) know\W*\Z")
OPENS_IN_CONTRAST = re.compile(r"\W*(?:but|however|nevertheless|nonetheless|in reality|actually)\b")
ABSTAIN = re.compile(
    rf"\bi (?:do not|don't|dont|did not|didn't|am not|'m not) {_ADVERBS}(?:know\b"
    rf"|have (?:[\w-]+ ){{0,4}}"
    rf"{_INFORMATION}|have access|sure (?:who|what|which|when|where|whether|how|if|about)|certain"
    r" (?:who|what|which|when|where|whether|how|if))"
    rf"|\b(?:cannot|can not|can't|could not|couldn't|unable to|not able to|not possible to"
    rf"|impossible to|difficult to|hard to|do not want to|will not|won't|not in a position to)"
    rf" {_ADVERBS}(?:be )?{_ADVERBS}(?:determined?|answer(?:ed)?|provide|give|say|tell|conclude"
    r"|identify|establish(?:ed)?|ascertain(?:ed)?|decide|make|draw|offer|compare|infer|name|state"
    r"|help|assist|respond|know|pinpoint|resolve|specify)\b(?! only\b)"
    rf"|\b(?:not (?:have )?enough|insufficient|lack of) (?:[\w-]+ ){{0,3}}?"
    rf"{_INFORMATION}(?: (?:is|are|would be) (?:needed|required|necessary|given|provided"
    rf"|available))?"
    r"(?! (?:about|on) (?:him|her|it)\b)"
    r"|\b(?:more|further|additional) (?:[\w-]+ ){0,3}?(?:information|evidence|contexts?|data"
    r"|details)"
    r" (?:is|are|would be|was|were)? ?(?:needed|required|necessary)"
    r"|\b(?:need|require) (?:more|further|additional) (?:[\w-]+ ){0,2}?(?:information|evidence"
    r"|contexts?|data|details)\b|\b(?:question|answer) (?:is|remains) (?:un\w+|open)\b"
    r"|\b(?:refrain|abstain) from|\bdecline to (?:answer|say)|\bno (?:definitive|clear|conclusive)"
    r" answer|\b(?:must|have to|will|would) say (?:that )?i (?:do not|don't) know"
    r"|\bi(?:'m| am) sorry\b|\b(?:is|are|remains?|it's) (?:[\w-]+ )?(?:unclear|inconclusive)\b"
    r"|\bremains? (?:unknown|uncertain)\b|\bnot (?:a )?(?:conclusive|definitive)\b"
)
SILENT = re.compile(
    rf"\b(?:{_SOURCE}|it|they|and)\s+(?:[\w'-]+\s+){{0,9}}?(?:do|does|did)(?: not|n't)\s+"
    r"(?:[\w-]+ly )?(?:provide|mention|contain|specify|state|say|tell|include|give|indicate|discuss"
    r"|describe|address|offer|reveal|list|identify|answer)\b"
    r"|\b(?:but|though) not (?:who|what|which|when|where|whether|how|why)\b"
    r"|\b(?:is|are|was|were)(?: not|n't) (?:[\w-]+ly |even |further )*(?:mentioned|specified"
    r"|provided"
    r"|stated|given|available|known|clear|included|described|listed|found|indicated)\b"
    r"|\bno (?:[\w-]+ ){0,2}?(?:mention|information|evidence|indication|details?|data|reference"
    r"|answer|record)\b|\bnot (?:specified|mentioned|provided|stated|known|clear|available)\b"
    r"|\b(?:could not|couldn't|cannot|can't|unable to|not able to|did not|didn't|was not able to)"
    r" (?:[\w-]+ly )?(?:find|verify|confirm|locate|see)\b|\bi have no (?:idea|information"
    r"|knowledge|evidence|way|details|data)\b"
)
SILENT_WHOLE = re.compile(
    r"\W*(?:unknown|n/a|none|not available|not applicable|no answer|insufficient information"
    r"|unanswerable|abstain|unclear|undetermined)\W*\Z"
)
# A sentence without one of these words (or "n't") cannot match the patterns above.
VERDICT_WORDS = word_set(
    """
    therefore thus hence consequently accordingly conclusion conclude summary summarize
    summarise sum ultimately considered final answer conclusion response name guess i i'll
    i'd so this these lean leaning inclined safe fair
    reasonable above preceding both instruction instructions strictly
    """
)
ABSTAIN_WORDS = word_set(
    """
    not no cannot unable unclear unknown insufficient sorry impossible difficult hard
    refrain abstain dont decline lack more further additional uncertain inconclusive none
    unanswerable undetermined unanswered unresolved open n
    """
)
CORRECTION_WORDS = word_set(
    """
    actually correction corrections corrected wait sorry apologize apologise apologies
    mistake error oops correct thought revised wrong scratch
    """
)
TRUST_WORDS = word_set(
    """
    trust rely relying go going favor favour prefer prioritize prioritise side stick lean
    leaning defer give giving place put believe follow use
    """
)

# ---------------------------------------------------------------- words that make no candidate

OTHER_ROLE = re.compile(
    r"(?:\b(?:than|defeat(?:s|ed|ing)?|beat(?:s|ing)?|edg(?:ed|ing)(?: out)?"
    r"|overc(?:ame|oming)|outscor\w+|over|against|between|compared (?:with|to)"
    r"|dedicated to|tributary of|joins|unlike|whether|together with|trained by|sister of|brother of"
    r"|(?:mov|transferr|annex|shift|relocat|separat)ed from|(?:annexation|shift|move|transfer) from"
    r"|thanks to|letter to|of both|which of|mention of|about|native to|named after)"
    r"(?: (?:the|a|an|it|both|either|[\w-]+ed|doctors|members))*)\s*[\"'(]?\s*\Z"
)
LOSING = re.compile(
    r"\s*(?:was|were|is|are|got|had been|has been)?\s*(?:defeated|beaten|edged|outscored|overcome"
    r"|eliminated)\s+by\b|\s*(?:had )?(?:lost|loses|lose)\b"
)
# "X is only mentioned": named, no more.
NAMED_AFTER = re.compile(
    r"[\s\"')]*(?:is|are|was|were)\s+(?:[\w-]+ly |also |just )*"
    r"(?:mentioned|referenced|cited|listed|discussed|said|claimed|alleged|rumou?red|reported)\b"
)
APART = re.compile(r"\b(?:between|of|comparing|both)\s(?:(?! is | was )[^,;]){0,80}\Z")
# Openers of clauses that give background, not the answer.
BACKGROUND = word_set("because since who whom whose which where after before as")
# Openers between which a comparison stands.
HARD = word_set("; so making while whereas but because although though however therefore")
EQUAL = re.compile(r"\b(?:same|equal(?:ly)?|identical|equivalent)\b")
PIVOT = re.compile(
    r"\b(?:than|before|after|compared (?:to|with)|(?<=\w )as(?= (?:the )?\w+)(?<!such as))\b"
)
INCIDENTAL_FIRST = re.compile(r"\bfirst (?=\w+ed\b)")


def denials(text: str) -> int:
    """Count the negations of a stretch of folded text, after set phrases that deny nothing."""
    if not NEGATION.search(text):
        return 0
    return sum(1 for _ in NEGATION.finditer(NEUTRAL.sub(" ", text)))
