#!/bin/sh
# Speech by curl: sh curl.sh "Text." out.wav [URL [TOKEN]]
#
# The text goes through jq where it is there, which writes any text as JSON; without it quotes and backslashes are
# left out. For the speakers instead of a file: "response_format": "pcm", -o - | aplay -q -f S16_LE -r 24000
set -eu
text=$1 out=$2 url=${3:-http://127.0.0.1:8000} token=${4:-none}
if command -v jq >/dev/null; then
    body=$(jq -n --arg text "$text" '{input: $text, voice: "alloy", response_format: "wav", stream: false}')
else
    text=$(printf %s "$text" | tr -d '"\\' | tr '\n\t' '  ')
    body="{\"input\": \"$text\", \"voice\": \"alloy\", \"response_format\": \"wav\", \"stream\": false}"
fi
# Of "stream": false, whose header tells the true length; without it the file grows while it is spoken. 429 and 503 come
# with Retry-After, which --retry waits for.
curl --silent --show-error --fail-with-body --retry 5 --no-buffer "$url/v1/audio/speech" \
    -H 'Content-Type: application/json' -H "Authorization: Bearer $token" -d "$body" -o "$out"
