"""Allowlist of the functions, types and keywords in queries over datasets.

An allowlist, since ClickHouse has functions that read files, call other hosts, sleep, name other tables or reveal
details of the server, and adds more with each release.
"""

from __future__ import annotations

_SCALAR = """
abs acos acosh addDays addHours addMicroseconds addMilliseconds addMinutes addMonths addNanoseconds addQuarters
addSeconds addWeeks addYears age alphaTokens and appendTrailingCharIfAbsent array arrayAUC arrayAll arrayAvg
arrayCompact arrayConcat arrayCount arrayCumSum arrayCumSumNonNegative arrayDifference arrayDistinct arrayDotProduct
arrayElement arrayElementOrNull arrayEnumerate arrayEnumerateDense arrayEnumerateUniq arrayExists arrayFill
arrayFilter arrayFirst arrayFirstIndex arrayFirstOrNull arrayFlatten arrayFold arrayIntersect arrayJaccardIndex
arrayJoin arrayLast arrayLastIndex arrayLastOrNull arrayMap arrayMax arrayMin arrayPartialSort arrayPopBack
arrayPopFront arrayProduct arrayPushBack arrayPushFront arrayReduce arrayResize arrayReverse arrayReverseFill
arrayReverseSort arrayReverseSplit arrayRotateLeft arrayRotateRight arrayShingles arrayShuffle arraySlice arraySort
arraySplit arrayStringConcat arraySum arrayUniq arrayWithConstant arrayZip ascii asin asinh assumeNotNull atan atan2
atanh bar base32Decode base32Encode base58Decode base58Encode base64Decode base64Encode base64URLDecode
base64URLEncode basename bin bitAnd bitCount bitHammingDistance bitNot bitOr bitRotateLeft bitRotateRight bitShiftLeft
bitShiftRight bitSlice bitTest bitXor byteSwap caseWithExpression caseWithoutExpression cbrt ceil ceiling char
char_length character_length cityHash64 clamp coalesce concat concatWithSeparator convertCharset cos cosh
cosineDistance countEqual countMatches countMatchesCaseInsensitive countSubstrings countSubstringsCaseInsensitive
crc32 crc64 cutFragment cutIPv6 cutQueryString cutToFirstSignificantSubdomain cutURLParameter cutWWW
damerauLevenshteinDistance date dateAdd dateDiff dateName dateSub dateTrunc date_add date_diff date_sub date_trunc day
dayOfMonth dayOfWeek dayOfYear decodeHTMLComponent decodeURLComponent decodeURLFormComponent decodeXMLComponent
degrees divide domain domainWithoutWWW e editDistance editDistanceUTF8 empty encodeURLComponent encodeXMLComponent
endsWith endsWithUTF8 equals erf erfc exp exp10 exp2 extract extractAll extractAllGroups extractAllGroupsHorizontal
extractAllGroupsVertical extractGroups extractTextFromHTML extractURLParameter extractURLParameterNames
extractURLParameters factorial farmFingerprint64 farmHash64 firstSignificantSubdomain flatten floor format
formatDateTime formatReadableDecimalSize formatReadableQuantity formatReadableSize formatReadableTimeDelta fragment
fromDaysSinceYearZero fromUnixTimestamp fromUnixTimestamp64Micro fromUnixTimestamp64Milli fromUnixTimestamp64Nano
fromUnixTimestamp64Second gcd geoDistance geoToH3 geohashDecode geohashEncode geohashesInBox greatCircleAngle
greatCircleDistance greater greaterOrEquals greatest h3CellAreaM2 h3Distance h3EdgeLengthKm h3GetBaseCell
h3GetResolution h3IsValid h3ToGeo h3ToParent h3ToString h3kRing has hasAll hasAny hasSubsequence hasSubstr hasToken
hasTokenCaseInsensitive hex hour hypot icebergTruncate if ifNotFinite ifNull ilike indexOf initcap initcapUTF8 instr
intDiv intDivOrZero intExp10 intExp2 intHash32 intHash64 IPv4CIDRToRange IPv4NumToString IPv4NumToStringClassC
IPv4StringToNum IPv4StringToNumOrNull IPv4ToIPv6 IPv6CIDRToRange IPv6NumToString IPv6StringToNum isDecimalOverflow
isFinite isIPAddressInRange isIPv4String isIPv6String isInfinite isNaN isNotDistinctFrom isNotNull isNull isNullable
isValidJSON isValidUTF8 isZeroOrNull jaroSimilarity jaroWinklerSimilarity javaHash JSONAllPaths JSONArrayLength
JSONExtract JSONExtractArrayRaw JSONExtractBool JSONExtractFloat JSONExtractInt JSONExtractKeys
JSONExtractKeysAndValues JSONExtractKeysAndValuesRaw JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas JSONKey
JSONLength JSONType JSON_EXISTS JSON_QUERY JSON_VALUE L1Distance L1Norm L2Distance L2Norm L2SquaredDistance
LinfDistance LinfNorm lcm least left leftPad leftPadUTF8 leftUTF8 length lengthUTF8 less lessOrEquals
levenshteinDistance lgamma like ln locate log log10 log1p log2 lower lowerUTF8 lpad ltrim makeDate makeDate32
makeDateTime makeDateTime64 map mapAdd mapAll mapApply mapConcat mapContains mapContainsKey mapExists
mapExtractKeyLike mapFilter mapFromArrays mapKeys mapPopulateSeries mapSort mapSubtract mapUpdate mapValues match
materialize max2 md5 MD5 mid min2 minus minute mod modulo moduloOrZero month monthName multiFuzzyMatchAny multiIf
multiMatchAllIndices multiMatchAny multiMatchAnyIndex multiSearchAllPositions multiSearchAny multiSearchFirstIndex
multiSearchFirstPosition multiply murmurHash2_32 murmurHash2_64 murmurHash3_128 murmurHash3_32 murmurHash3_64 negate
netloc ngramDistance ngramSearch ngrams normalizeUTF8NFC normalizeUTF8NFD not notEmpty notEquals notILike notLike now
now64 nowInBlock nullIf numericIndexedVectorBuild or overlay parseDateTime parseDateTime32BestEffort
parseDateTime64BestEffort parseDateTime64BestEffortOrNull parseDateTimeBestEffort parseDateTimeBestEffortOrNull
parseDateTimeBestEffortOrZero parseDateTimeBestEffortUS parseDateTimeOrNull parseDateTimeOrZero parseTimeDelta path
pathFull pi plus pointInEllipses pointInPolygon polygonAreaCartesian polygonAreaSpherical
polygonsIntersectionCartesian polygonsWithinCartesian port position positionCaseInsensitive
positionCaseInsensitiveUTF8 positionUTF8 positiveModulo pow power protocol quarter queryString queryStringAndFragment
radians range regexpExtract regexpQuoteMeta reinterpret reinterpretAsFloat64 reinterpretAsInt64 reinterpretAsString
reinterpretAsUInt64 repeat replace replaceAll replaceOne replaceRegexpAll replaceRegexpOne reverse reverseUTF8 right
rightPad rightPadUTF8 rightUTF8 round roundAge roundBankers roundDown roundDuration roundToExp2 rpad rtrim second
seriesDecomposeSTL seriesOutliersDetectTukey SHA1 SHA224 SHA256 SHA384 SHA512 sigmoid sign sin sinh sipHash128
sipHash64 snowflakeIDToDateTime snowflakeIDToDateTime64 soundex space splitByChar splitByNonAlpha splitByRegexp
splitByString splitByWhitespace sqrt startsWith startsWithUTF8 stringJaccardIndex subBitmap substr substring
substringIndex substringUTF8 subtractDays subtractHours subtractMicroseconds subtractMilliseconds subtractMinutes
subtractMonths subtractNanoseconds subtractQuarters subtractSeconds subtractWeeks subtractYears tan tanh tgamma
timeDiff timeSlot timeSlots timeZoneOf timeZoneOffset timestamp timestampDiff timestamp_add timestamp_diff
timestamp_sub timezoneOf timezoneOffset toBool toDate toDate32 toDate32OrDefault toDate32OrNull toDate32OrZero
toDateOrDefault toDateOrNull toDateOrZero toDateTime toDateTime32 toDateTime64 toDateTime64OrDefault
toDateTime64OrNull toDateTime64OrZero toDateTimeOrDefault toDateTimeOrNull toDateTimeOrZero toDayOfMonth toDayOfWeek
toDayOfYear toDaysSinceYearZero toDecimal128 toDecimal128OrNull toDecimal128OrZero toDecimal256 toDecimal32
toDecimal32OrNull toDecimal32OrZero toDecimal64 toDecimal64OrNull toDecimal64OrZero toDecimalString toFixedString
toFloat32 toFloat32OrNull toFloat32OrZero toFloat64 toFloat64OrDefault toFloat64OrNull toFloat64OrZero toHour toIPv4
toIPv4OrNull toIPv6 toIPv6OrNull toISOWeek toISOYear toInt128 toInt128OrNull toInt16 toInt16OrNull toInt16OrZero
toInt256 toInt32 toInt32OrDefault toInt32OrNull toInt32OrZero toInt64 toInt64OrDefault toInt64OrNull toInt64OrZero
toInt8 toInt8OrNull toInt8OrZero toIntervalDay toIntervalHour toIntervalMicrosecond toIntervalMillisecond
toIntervalMinute toIntervalMonth toIntervalNanosecond toIntervalQuarter toIntervalSecond toIntervalWeek toIntervalYear
toJSONString toLastDayOfMonth toLastDayOfWeek toLowCardinality toMillisecond toMinute toMonday toMonth toNullable
toQuarter toRelativeDayNum toRelativeHourNum toRelativeMinuteNum toRelativeMonthNum toRelativeQuarterNum
toRelativeSecondNum toRelativeWeekNum toRelativeYearNum toSecond toStartOfDay toStartOfFifteenMinutes
toStartOfFiveMinutes toStartOfHour toStartOfISOYear toStartOfInterval toStartOfMicrosecond toStartOfMillisecond
toStartOfMinute toStartOfMonth toStartOfQuarter toStartOfSecond toStartOfTenMinutes toStartOfWeek toStartOfYear
toString toTime toTimeZone toTimezone toTypeName toUInt128 toUInt128OrNull toUInt16 toUInt16OrNull toUInt16OrZero
toUInt256 toUInt32 toUInt32OrDefault toUInt32OrNull toUInt32OrZero toUInt64 toUInt64OrDefault toUInt64OrNull
toUInt64OrZero toUInt8 toUInt8OrNull toUInt8OrZero toUUID toUUIDOrDefault toUUIDOrNull toUUIDOrZero toUnixTimestamp
toUnixTimestamp64Micro toUnixTimestamp64Milli toUnixTimestamp64Nano toUnixTimestamp64Second toValidUTF8 toWeek
toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss toYear toYearWeek today tokens topLevelDomain transform translate translateUTF8
trim trimBoth trimLeft trimRight trunc truncate tryBase58Decode tryBase64Decode tuple tupleConcat tupleDivide
tupleElement tupleHammingDistance tupleMinus tupleMultiply tupleNames tupleNegate tuplePlus unbin unhex upper
upperUTF8 URLHash URLHierarchy URLPathHierarchy UUIDNumToString UUIDStringToNum UUIDv7ToDateTime vectorDifference
vectorSum visibleWidth week widthBucket xor xxHash32 xxHash64 xxh3 year yearweek yesterday
"""

_AGGREGATE = """
analysisOfVariance any anyHeavy anyLast any_value approx_top_count approx_top_k approx_top_sum argAndMax argAndMin
argMax argMin array_agg avg avgWeighted boundingRatio categoricalInformationValue contingency corr corrStable count
covarPop covarSamp covar_pop covar_samp cramersV cramersVBiasCorrected deltaSum deltaSumTimestamp entropy
exponentialMovingAverage exponentialTimeDecayedAvg exponentialTimeDecayedCount exponentialTimeDecayedMax
exponentialTimeDecayedSum first_value groupArray groupArrayInsertAt groupArrayIntersect groupArrayLast
groupArrayMovingAvg groupArrayMovingSum groupArraySample groupArraySorted groupBitAnd groupBitOr groupBitXor
groupConcat groupNumericIndexedVector groupUniqArray histogram intervalLengthSum kolmogorovSmirnovTest kurtPop
kurtSamp largestTriangleThreeBuckets last_value mannWhitneyUTest max maxIntersections maxIntersectionsPosition maxMap
meanZTest median medianExact medianTDigest min minMap quantile quantileDD quantileDeterministic quantileExact
quantileExactHigh quantileExactInclusive quantileExactLow quantileExactWeighted quantileGK
quantileInterpolatedWeighted quantileTDigest quantileTDigestWeighted quantileTiming quantiles quantilesExact
quantilesExactExclusive quantilesExactInclusive quantilesTDigest quantilesTiming rankCorr retention sequenceCount
sequenceMatch sequenceNextNode simpleLinearRegression singleValueOrNull skewPop skewSamp sparkbar stddevPop
stddevPopStable stddevSamp stddevSampStable stddev_pop stddev_samp stochasticLinearRegression studentTTest sum
sumCount sumKahan sumMap sumMapFiltered sumWithOverflow theilsU topK topKWeighted uniq uniqCombined uniqCombined64
uniqExact uniqHLL12 uniqUpTo varPop varPopStable varSamp varSampStable var_pop var_samp welchTTest windowFunnel
row_number rank dense_rank percent_rank cume_dist ntile lag lead lagInFrame leadInFrame nth_value
nonNegativeDerivative
"""

_COMBINATORS = (
    "if",
    "array",
    "distinct",
    "ornull",
    "ordefault",
    "map",
    "foreach",
    "argmin",
    "argmax",
    "state",
    "merge",
)

_TYPES = """
Array Bool Date Date32 DateTime DateTime32 DateTime64 Decimal Decimal32 Decimal64 Decimal128 Decimal256 Enum Enum8
Enum16 FixedString Float32 Float64 IPv4 IPv6 Int8 Int16 Int32 Int64 Int128 Int256 JSON LowCardinality Map Nested
Nullable Point String Time Time64 Tuple UInt8 UInt16 UInt32 UInt64 UInt128 UInt256 UUID Variant Dynamic BFloat16
"""

_KEYWORDS = """
ALL AND ANTI ANY APPLY ARRAY AS ASC ASOF BETWEEN BY CASE CAST COLUMNS CROSS CUBE CURRENT DESC DISTINCT ELSE END ESCAPE
EXCEPT EXISTS FALSE FILL FILTER FINAL FIRST FOLLOWING FROM FULL GLOBAL GROUP GROUPING GROUPS HAVING ILIKE IN INNER
INTERPOLATE INTERSECT INTERVAL IS JOIN LAST LEFT LIKE LIMIT NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION
PRECEDING PREWHERE QUALIFY RANGE RECURSIVE REPLACE RIGHT ROLLUP ROW ROWS SELECT SEMI SETS STEP THEN TIES TO TOTALS
TRUE UNBOUNDED UNION USING WHEN WHERE WINDOW WITH BOTH LEADING TRAILING NANOSECOND MICROSECOND MILLISECOND SECOND
MINUTE HOUR DAY WEEK MONTH QUARTER YEAR
"""

AGGREGATES = frozenset(_AGGREGATE.lower().split())
FUNCTIONS = frozenset(_SCALAR.lower().split()) | AGGREGATES
TYPES = frozenset(_TYPES.lower().split())
KEYWORDS = frozenset(_KEYWORDS.lower().split())


def is_function(name: str) -> bool:
    """Return whether a function is allowed, also with aggregate combinators (sumIf, uniqExactArrayIf)."""
    lowered = name.lower()
    if lowered in FUNCTIONS:
        return True
    for _ in range(4):
        suffix = next((combinator for combinator in _COMBINATORS if lowered.endswith(combinator)), None)
        if suffix is None:
            return False
        lowered = lowered.removesuffix(suffix)
        if lowered in AGGREGATES:
            return True
    return False
