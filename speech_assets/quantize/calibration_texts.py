"""What the base model speaks for calibration, and to judge by: texts as people send them.

Written for this project. No sentence of one set is in the other, in the sentences that the project
measures with, or in those that judge the voice: `calibration.shared_sentences` compares them.
"""

from __future__ import annotations

CALIBRATION_TEXTS: tuple[str, ...] = (
    # A few words.
    "Good morning, everyone!",
    "Wait for me.",
    "Not today, thanks.",
    "Of course you can.",
    "Turn left here.",
    "How very strange.",
    "Is anybody home?",
    "Call me tonight.",
    "Five more minutes, please.",
    "The soup is ready.",
    "Careful, that plate is hot!",
    "See you on Friday.",
    "Where did you put the keys?",
    "It works now.",
    "Sorry, wrong number.",
    "Have you eaten yet?",
    # One sentence, as an assistant or an announcement says it.
    "I have added milk, eggs and two lemons to your shopping list.",
    "Your taxi is waiting outside the main entrance.",
    "The meeting with the finance team has moved to the small room upstairs.",
    "There is a light drizzle in the north, with sunshine later in the day.",
    "Please keep your seat belt fastened until the sign above you goes out.",
    "I could not find a restaurant by that name, so here are three others nearby.",
    "The next stop is Harbour Street; doors open on the right.",
    "Your password will expire in one week.",
    "Dinner is served between six and ten on the terrace.",
    "The washing machine has finished its cycle.",
    "Someone is at the front door.",
    "Playing your favourite songs from the nineties.",
    "The lights in the hallway are now off.",
    "A new version is available and will be installed overnight.",
    "We are experiencing longer waiting times than usual.",
    "Ladies and gentlemen, the museum closes in a quarter of an hour.",
    # Numbers, dates, prices, units.
    "The total comes to $48.75, including a tip of 15%.",
    "Flight 2306 to Denver departs at 7:40 from gate B17.",
    "She was born on March 3, 1987, in a town of barely 900 people.",
    "Add 250 grams of flour and half a teaspoon of salt.",
    "The temperature will fall to minus 4 degrees by midnight.",
    "Dial 555-0142 and ask for extension 9.",
    "The bridge is 1,280 meters long and took six years to build.",
    "Your order number is 7 7 3 0 5.",
    "On the 21st of June the sun sets at 9:32.",
    "He ran the last mile in 4 minutes and 51 seconds.",
    "Inflation slowed from 3.4 to 2.9 percent over the winter.",
    "The apartment has 3 bedrooms, 2 bathrooms and about 110 square meters.",
    "Take two tablets every eight hours for ten days.",
    "In 1912 the factory employed 340 workers; by 1920 there were none.",
    # Names.
    "Doctor Okafor will see you after Mrs. Lindqvist.",
    "Priya and Tomasz are driving up from Valencia with their dog Biscuit.",
    "Have you read anything by Ursula Le Guin or Jorge Luis Borges?",
    "Our office in Kuala Lumpur reports to Hendrik van der Meer.",
    "The trophy went to Amelia Fontaine, ahead of Grace Nakamura and Ruth Adeyemi.",
    "From Lake Geneva we took the train to Milan and then on to Trieste.",
    "Mr. Abernathy, your parcel from Reykjavik has arrived.",
    "Nobody pronounces Worcestershire the way it is written.",
    # Questions.
    "What is the fastest way to the airport at this time of day?",
    "Would you rather have the window or the aisle?",
    "Why does bread go stale faster in the fridge?",
    "Could you remind me to water the tomatoes before work?",
    "How many people have signed up for the workshop so far?",
    "Did the plumber say when he was coming back?",
    "Which of these two photographs do you like better, and why?",
    "Shall I read the message aloud or save it for later?",
    # Lists and instructions.
    "You will need: a sharp knife, a wooden board, three onions, and a little patience.",
    "First unplug the router. Then count to thirty. Finally, plug it in again and look for a "
    "steady green light.",
    "Monday is yoga, Tuesday is choir, Wednesday is free, and on Thursday we cook together.",
    "Pack warm socks, a torch, spare batteries, matches, and something sweet for the climb.",
    "Press one for billing, press two for technical help, or stay on the line for an operator.",
    "Red, orange, yellow, green, blue, indigo, violet.",
    "To reset the alarm, hold both buttons until it beeps twice, and let go.",
    "Step one: preheat the oven. Step two: grease the tin. Step three: try not to eat the batter.",
    # Dialogue and feeling.
    '"You came back," she whispered. "I said I would," he answered, and put down his bag.',
    "Oh no, I forgot the tickets! They must still be on the kitchen table.",
    "Well, that was <laugh> not what I expected at all.",
    "I don't know what to say. Honestly, this is the kindest thing anyone has done for me.",
    '"Whose turn is it?" asked Leo. "Mine," said Ida, "and I am going to win."',
    "Hmm, let me think about it. No, I still can't remember her surname.",
    "Hooray! We made it to the top before the rain!",
    "Ugh, not again. Who keeps leaving the gate open?",
    "Come closer, children, and I will tell you what the fox did next.",
    "You're absolutely right, and I should have listened to you from the beginning.",
    # Two or three sentences.
    "The garden is at its best in May. Paths of pale gravel run between the roses, and a fountain "
    "murmurs at the far end.",
    "Thank you for calling the county clinic. If this is an emergency, hang up and dial the "
    "emergency number at once.",
    "I tried the recipe with buckwheat instead of wheat. It rose less, but the taste was nutty and "
    "rich.",
    "Octopuses have three hearts. Two of them serve the gills, and the third keeps the rest of the "
    "body going.",
    "The committee met for five hours. In the end it agreed on nothing except the date of its next "
    "meeting.",
    "Snow leopards are shy and rarely seen. Cameras with motion sensors have taught us most of "
    "what we know about them.",
    "My grandfather repaired watches for a living. He used to say that patience is only attention "
    "stretched thin.",
    "The update failed because the disk is almost full. Remove some large files and start it again "
    "from the settings menu.",
    # Long ones.
    "When the ferry finally pulled away from the pier, the whole island seemed to lean after it: "
    "the white chapel, the crooked pines, the old men on their bench, and a single goat that had "
    "followed us all the way down from the monastery.",
    "Photosynthesis is the process by which plants turn light, water and carbon dioxide into sugar "
    "and oxygen. It happens mostly in the leaves, inside tiny green bodies called chloroplasts, "
    "and nearly every meal on Earth can be traced back to it.",
    "Welcome to the evening news. Negotiators from eleven countries have reached a tentative "
    "agreement on fishing quotas, a fire at a warehouse in the docklands has been brought under "
    "control without injuries, and the national team has named its squad for the autumn.",
    "Dear Ms. Castellanos, thank you for your application. We were impressed by your experience, "
    "and would be glad to invite you to a conversation with the team in the second week of "
    "September. Please let us know which mornings would suit you.",
    "The trouble with maps, my aunt insisted, was that they made every road look equally willing. "
    "She preferred to ask strangers, partly because they knew about the mud, and partly because "
    "she collected their stories.",
    "In this chapter we look at rivers that flow underground. Rain seeps through cracks in the "
    "limestone, dissolves it grain by grain, and after thousands of years leaves halls so tall "
    "that a cathedral would fit inside.",
    "All right, here is the plan. Samira takes the early bus and saves us seats, I bring the "
    "sandwiches, and whoever wakes up last carries the tent, no excuses, not even a broken alarm.",
    "Once you have sanded the wood, wipe off the dust with a damp cloth, let it dry completely, "
    "and brush on a thin coat of oil along the grain; a second coat after a day will bring out the "
    "colour and keep the water from soaking in.",
)
"""96 texts whose generations calibrate a quantized checkpoint."""

HELD_OUT_TEXTS: tuple[str, ...] = (
    "Hello there!",
    "Nearly done.",
    "Can you hear me now?",
    "Stop at the corner.",
    "What a lovely surprise!",
    "No, the other one.",
    "I have set an alarm for half past six tomorrow morning.",
    "Your library book is due back on Saturday.",
    "The elevator is out of service; please use the stairs behind reception.",
    "Traffic is heavy on the ring road because of an accident near exit twelve.",
    "Remember to take your umbrella, since showers are likely after lunch.",
    "Bus 63 leaves in 8 minutes and reaches the stadium at 5:15.",
    "The jacket was $120, but today it is 30% off.",
    "On October 14, 2003, the council voted 27 to 19 against the tunnel.",
    "Mix 3 parts sand with 1 part cement and about 12 liters of water.",
    "Professor Yamamoto and Ms. Delacroix will open the exhibition in Rotterdam.",
    "Fatima asked whether Oliver had found the cottage near Galway.",
    "How long should the dough rest before I roll it out?",
    "Do you want the short answer or the honest one?",
    "Who was the first person to sail alone around the world?",
    "On the table lay a compass, two candles, a torn map, and somebody's spectacles.",
    "Open the app, choose your profile, tap on privacy, and switch off location sharing.",
    '"Did you lock the shed?" Nora asked. "Twice," said her brother, yawning.',
    "Oh, come on, that can't be the whole story!",
    "I was so tired that I put the salt in my coffee and the sugar on my eggs.",
    "Bees tell each other where the flowers are by dancing. The angle of the dance gives the "
    "direction, and its length the distance.",
    "We regret to inform you that tonight's concert is cancelled. Tickets will be refunded "
    "automatically within five working days.",
    "The violin had been in a cupboard for sixty years. All it needed was a new bridge, fresh "
    "strings, and somebody brave enough to play it.",
    "Good evening, and thank you for flying with us. We expect a smooth journey of just under "
    "three hours, with clear skies most of the way and a little turbulence over the mountains.",
    "Glass looks solid, yet its molecules are arranged almost as loosely as those of a liquid. "
    "That is why it breaks into curved splinters instead of neat little cubes, and why no two "
    "cracks are ever alike.",
    "Every winter, when the lake froze, the two villages met in the middle to trade cheese for "
    "wool, gossip for better gossip, and sometimes a daughter's promise for a fiddle tune.",
    "If you are new here, start with the yellow trail, which is short and shaded; after that, the "
    "blue one climbs past the ruined mill to a lookout from which, on a good day, you can see the "
    "sea.",
)
"""32 texts whose generations judge a checkpoint, and calibrate none."""
