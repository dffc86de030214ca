-- Gives {2, rows, names of events}, {1} if the session still has the version that was seen, {0} if there is none.
-- KEYS: the rows, the events. ARGV: the version seen, or nothing.
local seen = redis.call('HGET', KEYS[1], '=')
if not seen then return {0} end
if seen == ARGV[1] then return {1} end
return {2, redis.call('HGETALL', KEYS[1]), redis.call('HKEYS', KEYS[2])}
