-- Moves a session on the agenda, if it still stands where it was seen.
-- KEYS: agenda. ARGV: session, where it was seen, where it goes.
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
if at and tonumber(at) == tonumber(ARGV[2]) then redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
return 1
